# frozen_string_literal: true

class PagesController < ApplicationController
  # Scripts are for pages of this app only, unless a page says otherwise.
  skip_after_action :verify_same_origin_request, only: :cable_script

  def show
    render plain: "#{Rails.configuration.x.greeting} #{Process.pid}"
  end

  def up
    render plain: "up"
  end

  def cable
    render layout: false
  end

  # The client-side script comes with the gem, or with an npm package.
  def cable_script
    folders = ["#{ActionCable::Engine.root}/app/assets/javascripts", "/usr/share/nodejs/@rails/actioncable/app/assets/javascripts"]
    script = Dir["{#{folders.join(',')}}/{actioncable,action_cable}.js"].first
    render plain: File.read(script), content_type: "text/javascript"
  end
end
