# frozen_string_literal: true

# A guestbook: a page, a form, and the same entries as JSON. Entries live in the memory of a worker, so with several
# workers each has a book of its own; a real app keeps them in a database.

require "json"
require "sinatra/base"

# The app: its settings, what its pages may call, its routes.
class Guestbook < Sinatra::Base
  Entry = Struct.new(:name, :text, :at, keyword_init: true)

  LONGEST_NAME = 40
  LONGEST_TEXT = 500
  KEPT = 100

  set :root, __dir__
  set :entries, []
  set :lock, Mutex.new
  set :show_exceptions, false

  helpers do
    def h(text) = Rack::Utils.escape_html(text)

    def entries = settings.lock.synchronize { settings.entries.dup }

    def write(name, text)
      entry = Entry.new(name: name.strip[0, LONGEST_NAME], text: text.strip[0, LONGEST_TEXT], at: Time.now.utc)
      settings.lock.synchronize { settings.entries.unshift(entry).slice!(KEPT..) }
      entry
    end

    # What is missing from an entry; nil when nothing is.
    def complaint(name, text)
      return "Please tell your name." if name.to_s.strip.empty?

      "Please write something." if text.to_s.strip.empty?
    end
  end

  get "/" do
    erb :book, locals: { complaint: nil, name: "", text: "" }
  end

  post "/entries" do
    name, text = params.values_at("name", "text").map(&:to_s)
    fault = complaint(name, text)
    halt 422, erb(:book, locals: { complaint: fault, name: name, text: text }) if fault

    write(name, text)
    redirect to("/"), 303
  end

  get "/entries.json" do
    content_type :json
    JSON.generate(entries.map { |entry| entry.to_h.merge(at: entry.at.strftime("%FT%TZ")) })
  end

  get "/up" do
    content_type :text
    "up\n"
  end

  not_found do
    content_type :text
    "There is no such page.\n"
  end
end
