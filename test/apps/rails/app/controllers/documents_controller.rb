# frozen_string_literal: true

class DocumentsController < ApplicationController
  def new
    render html: helpers.form_with(url: "/documents", multipart: true, local: true) { helpers.file_field_tag(:file) }, layout: true
  end

  def create
    document = Document.create!(name: params[:name], file: params.require(:file))
    redirect_to "/documents/#{document.id}"
  end

  def show
    file = Document.find(params[:id]).file
    render json: { redirect: rails_storage_redirect_path(file), proxy: rails_storage_proxy_path(file), size: file.byte_size, name: file.filename.to_s }
  end
end
