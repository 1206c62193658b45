# frozen_string_literal: true

class CookiesController < ApplicationController
  def set
    cookies[:plain] = { value: "plain value; ä", path: "/" }
    cookies.signed[:signed] = "signed value"
    cookies.encrypted[:encrypted] = { value: { "a" => 1 }, httponly: true }
    head :no_content
  end

  def show
    render json: { plain: cookies[:plain], signed: cookies.signed[:signed], encrypted: cookies.encrypted[:encrypted] }
  end
end
