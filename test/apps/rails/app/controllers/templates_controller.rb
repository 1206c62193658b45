# frozen_string_literal: true

# A template that is sent while it is rendered: the layout's head comes before the page.
class TemplatesController < ApplicationController
  layout "streamed"

  def show
    response.headers["Last-Modified"] = Time.now.httpdate
    render stream: true
  end
end
