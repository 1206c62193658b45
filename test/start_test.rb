# frozen_string_literal: true

# docs/start.md, followed to the letter: each of its sections in an empty folder, with its files written and its commands typed. The text after
# a command's `#` is in what it prints.

require "support/case"
require "support/rails_app"

class StartTest < Case
  parallel!

  PAGE = File.read(File.join(Server::ROOT, "docs/start.md"))
  SECTIONS = PAGE.split(/^## /).drop(1).to_h { |part| part.split("\n", 2) }.except("Next").freeze
  SERVING = /\Afirebrick( serve .*)?\z/

  def setup
    firebrick_only
    @dir = File.realpath(Dir.mktmpdir("firebrick-start"))
    @port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    FileUtils.mkdir_p(File.join(@dir, ".bin"))
    FileUtils.ln_s(Server.binary, File.join(@dir, ".bin/firebrick"))
    @env = { "PATH" => "#{@dir}/.bin:#{ENV.fetch('PATH')}", "PORT" => @port.to_s, "FIREBRICK_CONTROL" => nil, "XDG_STATE_HOME" => File.join(@dir, ".state"),
             "XDG_RUNTIME_DIR" => FileUtils.mkdir_p(File.join(@dir, ".run"), mode: 0o700).first, "RAILS_ENV" => nil, "RACK_ENV" => nil, **Server.ruby_files }
  end

  def teardown
    stop if @pid
    FileUtils.remove_entry(@dir) if @dir
  end

  it "has these sections, and a test for each" do
    assert_equal ["Rails", "Sinatra", "A static site", "A handler on mruby"], SECTIONS.keys
    commands = SECTIONS.values.flat_map { |text| commands(text) }
    assert_equal(4, commands.count { |command, _| command.match?(SERVING) })
    assert_operator commands.size, :>, 12
  end

  it "prints its version" do
    follow(PAGE.split("\n## ").first)
  end

  it "Rails" do
    rails_only
    @env.merge!(RailsApp::ENVIRONMENT)
    RailsApp.files.each { |name, text| write(name, text) }
    follow(SECTIONS.fetch("Rails"))
  end

  (SECTIONS.keys - ["Rails"]).each do |name|
    it name do
      mruby_only if name.include?("mruby")
      follow(SECTIONS.fetch(name))
    end
  end

  private

  # [command, the text it must print, or nil]
  def commands(text)
    text.gsub(/^```.*?^```/m, "").scan(/^ {4}(.+)$/).flatten.map { |line| line.split(/\s+# /, 2) }
  end

  # Each block of code belongs to the file that the line before names.
  def files(text) = text.scan(/`([\w.]+)`:\n\n```\w+\n(.*?)^```/m)

  def write(name, text)
    path = File.join(@dir, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.binwrite(path, text)
  end

  def follow(text)
    files(text).each { |name, content| write(name, content) }
    commands(text).each do |command, expected|
      command = command.gsub("localhost:9292", "127.0.0.1:#{@port}")
      next serve(command) if command.match?(SERVING)

      out, status = Open3.capture2e(@env, "bash", "-c", command, chdir: @dir)
      assert status.success?, "#{command}\n#{out}\n#{log}"
      assert_includes out.downcase, expected.downcase, "#{command}\n#{log}" if expected
    end
  end

  def serve(command)
    @pid = Process.spawn(@env, command, chdir: @dir, pgroup: true, in: File::NULL, %i[out err] => [File.join(@dir, ".log"), "w"])
    wait_until("#{command} to listen", within: 120) { log.include?("Listening on") || Process.wait(@pid, Process::WNOHANG) }
    assert_includes log, "Listening on"
  end

  def stop
    Process.kill("INT", @pid)
    wait_until("the end after Ctrl-C", within: 30) { @status ||= Process.wait2(@pid, Process::WNOHANG)&.last }
    assert_equal 0, @status&.exitstatus, log
  ensure
    Process.kill("KILL", -@pid) rescue SystemCallError
  end

  def log = (File.read(File.join(@dir, ".log")) rescue "")
end
