# frozen_string_literal: true

# A guestbook: a page, a form, and the same entries as JSON. Entries are kept in the memory of a worker, so with
# several workers each has its own book; a real app keeps them in a database.

require "json"
require "sinatra/base"

# The app: settings, helpers of its pages, routes.
class Guestbook < Sinatra::Base
  Entry = Struct.new(:name, :text, :at, keyword_init: true)

  MAX_NAME = 40
  MAX_TEXT = 500
  KEPT = 100

  set :root, __dir__
  set :entries, []
  set :lock, Mutex.new
  set :show_exceptions, false

  helpers do
    def h(text) = Rack::Utils.escape_html(text)

    def entries = settings.lock.synchronize { settings.entries.dup }

    def write(name, text)
      entry = Entry.new(name: name.strip[0, MAX_NAME], text: text.strip[0, MAX_TEXT], at: Time.now.utc)
      settings.lock.synchronize { settings.entries.unshift(entry).slice!(KEPT..) }
      entry
    end

    # Returns the fault of an entry; nil if it is complete.
    def problem(name, text)
      return "Please enter your name." if name.to_s.strip.empty?

      "Please enter a message." if text.to_s.strip.empty?
    end
  end

  get "/" do
    erb :book, locals: { problem: nil, name: "", text: "" }
  end

  post "/entries" do
    name, text = params.values_at("name", "text").map(&:to_s)
    problem = problem(name, text)
    halt 422, erb(:book, locals: { problem: problem, name: name, text: text }) if problem

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
    "Not found.\n"
  end
end
