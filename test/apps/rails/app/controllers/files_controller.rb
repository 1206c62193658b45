# frozen_string_literal: true

class FilesController < ApplicationController
  def sent
    send_file Rails.root.join("files/report.txt"), type: "text/plain", disposition: "attachment", filename: "répört.txt"
  end

  def data
    send_data "0123456789" * 10, type: "application/octet-stream", filename: "data.bin"
  end

  def accelerated
    response.headers["X-Accel-Redirect"] = "/protected/#{params[:path]}"
    send_data "", type: "text/plain", disposition: "inline"
  end
end
