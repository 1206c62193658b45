# frozen_string_literal: true

# Lets a shared cache keep the pages that Redmine shows to everybody: copy this file to config/initializers/.
#
# A page is public if its visitor sent no cookie, is not logged in, and the page has no form to send: such a form has a
# token of the visitor's session. The form around a list of issues does not count; it is for the menu of users who have
# logged in. A visitor with a cookie never gets such a page from the cache, because it varies by Cookie.
Rails.application.config.to_prepare do
  ApplicationController.after_action do
    next unless request.get? && response.status == 200
    next unless request.headers["Cookie"].blank? && !User.current.logged?
    next if response.body.match?(/<form (?![^>]*data-cm-url=)[^>]*method="post"/)

    # Without a session there is no Set-Cookie.
    request.session_options[:skip] = true
    expires_in 10.seconds, public: true, stale_while_revalidate: 30.seconds
    response.headers["Vary"] = [response.headers["Vary"], "Cookie", "Accept-Language"].compact.join(", ")
  end
end
