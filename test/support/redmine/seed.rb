# frozen_string_literal: true

# Run by Redmine's `bin/rails runner` with an empty database: the schema, Redmine's default data, and a project with an entry
# of each kind. Dates are years ago, so that a page says "over 2 years" at any time of the day, and no value is random, so that
# two databases have the same pages.

require "English"

ENV["SCHEMA"] = "/dev/null"
Mailer.perform_deliveries = false if defined?(Mailer)
# Durability does not matter: the file is copied when it is complete.
def hurry
  connection = ActiveRecord::Base.connection
  %w[synchronous=OFF journal_mode=MEMORY].each { |pragma| connection.execute("PRAGMA #{pragma}") } if connection.adapter_name == "SQLite"
end

# Runs in a separate process: otherwise models would cache the tables of older versions.
ActiveRecord::Base.connection_handler.clear_all_connections!
migration = fork do
  ActiveRecord::Migration.verbose = false
  hurry
  ActiveRecord::Base.connection.migration_context.migrate
end
Process.wait(migration)
abort "the migration failed" unless $CHILD_STATUS.success?
hurry
ActiveRecord::Base.connection.schema_cache.clear!
ActiveRecord::Base.descendants.each { |model| model.reset_column_information unless model.abstract_class? }
Setting.clear_cache
Redmine::DefaultData::Loader.load("en") unless Role.givable.any?

DAY = Time.utc(2024, 3, 4, 9, 30, 0)
WORDS = %w[furnace kiln hearth mortar lining shaft burner damper flue grate chimney clinker].freeze

def text(number, sentences = 12)
  Array.new(sentences) { |at| "The #{WORDS[(number + at) % 12]} of batch #{number + at} needs a *new #{WORDS[(number * 3 + at) % 12]}* before the #{WORDS[at % 12]} is lit." }.join(" ")
end

Setting.notified_events = []
Setting.rest_api_enabled = "1"
Setting.host_name = "redmine.example"
Setting.text_formatting = "textile"
Setting.per_page_options = "25,50,100"
Setting.enabled_scm = []
Setting.default_language = "en"
Setting.force_default_language_for_anonymous = "1"

admin = User.find_by!(login: "admin")
admin.update!(password: "admin-secret", password_confirmation: "admin-secret", must_change_passwd: false, language: "en", mail_notification: "none")
Token.create!(user: admin, action: "api", value: "a" * 40).update_columns(value: "a" * 40)
User.current = admin

people = %w[Ada Ben Cleo].map do |name|
  user = User.new(firstname: name, lastname: "Potter", mail: "#{name.downcase}@redmine.example", language: "en", mail_notification: "none",
                  password: "#{name}-secret-1", password_confirmation: "#{name}-secret-1")
  user.login = name.downcase
  user.tap(&:save!)
end

# Feeds are part of pages.
[admin, *people].each { |user| Token.create!(user: user, action: "feeds").update_columns(value: user.id.to_s * 40) }

projects = [%w[works Works], %w[stock Stock]].map do |identifier, name|
  project = Project.create!(name: name, identifier: identifier, description: text(1, 3), is_public: true, trackers: Tracker.all.to_a,
                            enabled_module_names: %w[issue_tracking time_tracking news documents files wiki boards calendar gantt])
  people.each_with_index { |user, at| Member.create!(project: project, principal: user, roles: [Role.givable.to_a[at % 3]]) }
  project
end
works = projects.first

versions = %w[1.0 2.0].map.with_index do |name, at|
  Version.create!(project: works, name: name, effective_date: Date.new(2024, 6 + at, 1), description: text(at, 1), wiki_page_title: "Release_#{at}")
end
categories = %w[Masonry Gas].map { |name| IssueCategory.create!(project: works, name: name) }
IssueCustomField.create!(name: "Temperature", field_format: "int", is_for_all: true, is_filter: true, trackers: Tracker.all.to_a)

60.times do |at|
  day = DAY + at.hours
  issue = Issue.new(project: at < 50 ? works : projects.last, tracker: Tracker.all.to_a[at % 3], author: people[at % 3], subject: "The #{WORDS[at % 12]} number #{at}",
                    description: "#{text(at)}\n\n* one\n* two\n\n<pre><code class=\"ruby\">\ndef kiln\n  fire! if cold?\nend\n</code></pre>", priority: IssuePriority.all.to_a[at % 5], status: IssueStatus.all.to_a[at % 3],
                    start_date: day.to_date, due_date: day.to_date + 10 + (at % 5), done_ratio: (at % 10) * 10, estimated_hours: at % 8)
  if at < 50
    issue.fixed_version = versions[at % 2]
    issue.category = categories[at % 2]
    issue.assigned_to = people[at % 3]
  end
  issue.parent_issue_id = 1 if (2..4).cover?(at)
  issue.save!
  (at % 4).times do |number|
    issue.reload.init_journal(people[number], "Note #{number}: see #1 and [[Start]]. #{text(number, 4)}")
    issue.done_ratio = ((at + number) % 10) * 10 if issue.leaf?
    issue.save!
  end
  TimeEntry.create!(project: issue.project, issue: issue, user: people[at % 3], author: people[at % 3], hours: 1.5, activity: TimeEntryActivity.first,
                    spent_on: day.to_date, comments: "fired")
end
IssueRelation.create!(issue_from: Issue.find(10), issue_to: Issue.find(11), relation_type: "relates")
Watcher.create!(watchable: Issue.find(1), user: people[0])

%w[Start Release_0 Release_1 Masonry Gas].each_with_index do |title, at|
  page = WikiPage.new(wiki: works.wiki, title: title)
  page.content = WikiContent.new(page: page, text: "h1. #{title}\n\n{{toc}}\n\nh2. First\n\n#{text(at, 20)}\n\n|_. a |_. b |\n| 1 | #{at} |\n\nh2. Second\n\n[[Start]] #1 r1", author: admin, comments: "first")
  page.save!
  page.content.text += "\n\nh2. Third\n\n#{text(at + 3)}"
  page.content.comments = "second"
  page.content.save!
end

3.times do |at|
  news = News.create!(project: works, author: people[at], title: "News #{at}", summary: text(at, 1), description: text(at))
  2.times { |number| Comment.create!(commented: news, author: people[number], content: text(number, 2)) }
end
board = Board.create!(project: works, name: "Questions", description: "About fire")
4.times do |at|
  topic = Message.create!(board: board, author: people[at % 3], subject: "Question #{at}", content: text(at))
  3.times { |number| Message.create!(board: board, parent: topic, author: people[number], subject: "RE: Question #{at}", content: text(number, 3)) }
end
document = Document.create!(project: works, category: DocumentCategory.first, title: "Plan", description: text(3))

def attach(container, name, type, content)
  file = StringIO.new(content)
  file.define_singleton_method(:original_filename) { name }
  file.define_singleton_method(:content_type) { type }
  attachment = Attachment.create!(container: container, file: file, author: User.current, filename: name)
  path = File.join(Attachment.storage_path, "2024/03", "240304093000_#{name}")
  FileUtils.mkdir_p(File.dirname(path))
  FileUtils.mv(attachment.diskfile, path) unless attachment.diskfile == path
  attachment.update_columns(disk_directory: "2024/03", disk_filename: File.basename(path))
end

# A picture of 64 x 64 pixels, so that there is a thumbnail to make.
picture = ChunkyPNG::Image.new(64, 64, ChunkyPNG::Color.rgb(200, 90, 20)).to_blob
attach(Issue.find(1), "notes.txt", "text/plain", Array.new(400) { |at| "#{at}: #{text(at, 1)}\n" }.join)
attach(Issue.find(1), "kiln.png", "image/png", picture)
attach(document, "log.bin", "application/octet-stream", (0..255).to_a.pack("C*") * 4096)
attach(works, "release.tar", "application/octet-stream", "tar" * 5000)
attach(WikiPage.find_by!(title: "Start"), "wiki.patch", "text/x-patch", "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n")

IssueQuery.create!(name: "Hot", user: admin, visibility: Query::VISIBILITY_PUBLIC, filters: { "status_id" => { operator: "o", values: [""] } }, column_names: %i[subject priority], sort_criteria: [%w[id desc]])

# One second apart, so that sorting by time has one order.
connection = ActiveRecord::Base.connection
later = connection.adapter_name == "SQLite" ? "datetime('2024-03-04 09:30:00', '+' || id || ' seconds')" : "timestamp '2024-03-04 09:30:00' + id * interval '1 second'"
connection.tables.each do |table|
  names = connection.columns(table).map(&:name)
  times = names & %w[created_on updated_on closed_on last_login_on passwd_changed_on commented_on]
  next if times.empty? || !names.include?("id")

  connection.execute("UPDATE #{table} SET #{times.map { |name| "#{name} = #{later}" }.join(', ')}")
end
