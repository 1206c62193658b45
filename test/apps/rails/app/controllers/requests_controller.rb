# frozen_string_literal: true

# Rails' view of a request, and responses without a view.
class RequestsController < ApplicationController
  skip_forgery_protection only: %i[echo digest broadcast]

  def echo
    Rails.logger.info("in the action")
    render json: { id: request.request_id, ip: request.remote_ip, ssl: request.ssl?, url: request.original_url, method: request.request_method,
                   params: request.request_parameters, host: request.host }
  end

  def digest
    file = params.require(:file)
    render json: { size: file.size, digest: Digest::SHA256.file(file.path).hexdigest, name: file.original_filename, note: params[:note] }
  end

  def fresh
    fresh_when etag: "v1", last_modified: Time.utc(2020, 1, 2), public: true
    render plain: "fresh" unless performed?
  end

  def fails
    raise ArgumentError, "an error of the app"
  end

  def hints
    request.send_early_hints("Link" => "</assets/site.css>; rel=preload; as=style")
    render plain: "hinted"
  end

  def broadcast
    ActionCable.server.broadcast("room", { said: params[:text], by: Process.pid })
    head :no_content
  end
end
