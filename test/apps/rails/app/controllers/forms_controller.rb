# frozen_string_literal: true

# Forms with tokens, the session and the flash.
class FormsController < ApplicationController
  def new
    render html: helpers.form_with(url: "/form", local: true) { helpers.text_field_tag(:text) }, layout: true
  end

  def create
    session[:visits] = session[:visits].to_i + 1
    flash[:notice] = "saved #{params[:text]}"
    redirect_to "/notice"
  end

  # Not "notice": newer releases of Rails keep the name of the flash's helper from being an action.
  def saved
    render plain: "#{flash[:notice].inspect} #{session[:visits].inspect}"
  end
end
