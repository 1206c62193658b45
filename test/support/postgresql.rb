# frozen_string_literal: true

# A PostgreSQL server with its own cluster in a temporary folder, reached through a Unix socket only.

require "etc"
require "fileutils"
require "open3"
require "tmpdir"
require "support/clock"
require "support/interruption"

class Postgresql
  include Clock

  # The programs of the newest version on this system.
  def self.programs
    Dir["/usr/lib/postgresql/*/bin"].max_by { |folder| folder[/\d+/].to_i }
  end

  # The folder of its socket, which clients use as the host name.
  attr_reader :dir, :pid

  def initialize
    @dir = Dir.mktmpdir("firebrick-postgresql")
    Interruption.own(@dir)
    # PostgreSQL refuses to run as root; the package creates a user.
    @user = Etc.getpwnam("postgres") if Process.uid.zero?
    FileUtils.chown(@user.uid, @user.gid, @dir) if @user
  end

  def start
    run(*as_user(program("initdb"), "--pgdata", data, "--auth=trust", "--username=redmine", "--encoding=UTF8", "--no-locale", "--no-sync"))
    settings = %w[fsync=off synchronous_commit=off full_page_writes=off max_connections=50 listen_addresses=] + ["unix_socket_directories=#{@dir}"]
    @pid = Process.spawn(*as_user(program("postgres"), "-D", data, *settings.flat_map { |setting| ["-c", setting] }), in: File::NULL, out: log, err: log, chdir: @dir, pgroup: true)
    ready = wait_until(within: 30) { system(program("pg_isready"), "--quiet", "--host", @dir) || Process.wait(@pid, Process::WNOHANG) }
    raise "PostgreSQL did not start:\n#{File.read(log)}" unless ready && system(program("pg_isready"), "--quiet", "--host", @dir)

    self
  end

  # Makes a database. template: a database to copy, which must not be in use meanwhile.
  def create(name, template: "template1")
    run(program("createdb"), "--host", @dir, "--username=redmine", "--template", template, name)
    { "adapter" => "postgresql", "host" => @dir, "username" => "redmine", "database" => name, "encoding" => "utf8", "pool" => 10 }
  end

  # Ends the server, and its clients' connections.
  def finish
    if @pid
      Process.kill("QUIT", @pid)
      Process.wait(@pid)
    end
    FileUtils.remove_entry(@dir)
    Interruption.disown(@dir)
  end

  private

  def data = File.join(@dir, "data")
  def log = File.join(@dir, "log")
  def program(name) = File.join(self.class.programs, name)

  # Runs the command as the package's user, with the same process id.
  def as_user(*command)
    @user ? ["setpriv", "--reuid=#{@user.uid}", "--regid=#{@user.gid}", "--clear-groups", *command] : command
  end

  def run(*command)
    out, status = Open3.capture2e(*command, chdir: @dir)
    raise "#{command.join(' ')}: #{out}" unless status.success?
  end
end
