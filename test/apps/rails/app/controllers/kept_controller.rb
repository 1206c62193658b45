# frozen_string_literal: true

# Pages that say how a shared cache may keep them. Each shows how often the app has made one.
class KeptController < ApplicationController
  MADE = Hash.new(0)

  def long
    expires_in 5.minutes, public: true, stale_while_revalidate: 30.seconds
    response.headers["Surrogate-Key"] = "kept #{params[:tag]}".strip
    render html: page
  end

  def versioned
    fresh_when etag: "v1", last_modified: Time.utc(2020, 1, 2), public: true
    render html: page unless performed?
  end

  def asked
    render html: page if stale?(etag: ["asked", params[:version]], public: true)
  end

  def own
    cookies[:seen] = "yes"
    expires_in 5.minutes, public: true
    render html: page
  end

  def default
    render html: page
  end

  private

  def page
    made = MADE[action_name] += 1
    "<p>#{action_name} #{made} for #{cookies[:user]}</p>#{'<li>item</li>' * 200}".html_safe
  end
end
