# frozen_string_literal: true

module Redmine
  # One page of each kind that Redmine has, with the data of seed.rb.
  PAGES = [
    # HTML
    "/", "/my/page", "/my/account", "/projects", "/projects/works", "/projects/works/activity?from=2024-03-06", "/projects/works/issues",
    "/projects/works/issues?set_filter=1&f[]=status_id&op[status_id]=*&group_by=status&per_page=100", "/projects/works/issues?query_id=1", "/issues?page=2",
    "/issues/1", "/issues/8", "/issues/11", "/issues/12/edit", "/projects/works/issues/new", "/projects/works/issues/report", "/projects/works/roadmap", "/versions/1",
    "/projects/works/issues/gantt?year=2024&month=3&months=3", "/projects/works/issues/calendar?year=2024&month=3", "/projects/works/time_entries",
    "/projects/works/time_entries/report?criteria[]=user&columns=month", "/projects/works/wiki", "/projects/works/wiki/index", "/projects/works/wiki/Masonry",
    "/projects/works/wiki/Start/history", "/projects/works/wiki/Start/diff?version=2&version_from=1", "/projects/works/wiki/Start/edit", "/projects/works/news", "/news/1", "/projects/works/boards",
    "/projects/works/boards/1", "/boards/1/topics/1", "/projects/works/documents", "/documents/1", "/projects/works/files", "/projects/works/settings", "/users/5", "/admin", "/users", "/settings",
    "/search?q=kiln&issues=1&wiki_pages=1&messages=1", "/attachments/1",
    # Atom, CSV, PDF, PNG
    "/projects/works/activity.atom?from=2024-03-06", "/projects/works/issues.csv?columns=all", "/issues/1.pdf", "/projects/works/wiki/Gas.pdf",
    "/projects/works/issues/gantt.png?year=2024&month=3&months=3",
    # JSON and XML
    "/issues.json?limit=100&status_id=*", "/issues/1.xml?include=journals,children,attachments"
  ].freeze

  # Uploaded files, and a thumbnail.
  DOWNLOADS = ["/attachments/download/1/notes.txt", "/attachments/download/2/kiln.png", "/attachments/download/3/log.bin", "/attachments/thumbnail/2/32"].freeze

  # Files of public/, three of them behind symbolic links that leave it.
  ASSETS = ["/javascripts/application.js", "/stylesheets/application.css", "/images/add.png", "/favicon.ico", "/help/en/wiki_syntax_textile.html",
            "/javascripts/jquery.min.js", "/javascripts/jquery_ujs.js", "/javascripts/raphael.js"].freeze
end
