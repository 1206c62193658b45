# frozen_string_literal: true

require "rbconfig"

# The commands and options that `rackup -s firebrick` and `rails server -u firebrick` lead to.
class HandlerTest < Case
  $LOAD_PATH.unshift(FakeFront::LIB)
  require "firebrick/handler"

  def arguments(**options)
    Firebrick::Handler.arguments(options)
  end

  def test_options_become_flags
    assert_equal %w[--port 3000 --environment production --threads 1:5 --host 0.0.0.0 --early-hints],
                 arguments(Port: 3000, Host: "0.0.0.0", environment: "production", Threads: "1:5", early_hints: true)
  end

  def test_defaults_lose
    assert_equal %w[--port 3000],
                 arguments(Port: 3000, Host: "localhost", environment: "x", user_supplied_options: [:Port])
    assert_empty arguments(Port: 3000, user_supplied_options: [])
  end

  def test_hosts
    assert_equal %w[--bind unix:///run/a.sock], arguments(Host: "/run/a.sock")
    assert_equal ["--bind", "unix://#{File.expand_path('a.sock')}"], arguments(Host: "./a.sock")
    assert_equal %w[--bind unix://@name], arguments(Host: "@name")
    assert_equal %w[--bind ssl://a:1], arguments(Host: "ssl://a:1")
  end

  def test_the_rackup_file
    assert_equal [__FILE__], arguments(config: __FILE__, user_supplied_options: [])
    assert_empty arguments(config: "/nowhere/config.ru")
  end

  def test_rack_finds_the_handler
    text = 'require "rack"; h = begin; require "rackup/handler"; Rackup::Handler; rescue LoadError; Rack::Handler; end; ' \
           'print h.get("firebrick").name'
    name = IO.popen([*FakeFront::RUBY, "-I", FakeFront::LIB, "-e", text], &:read)
    assert_match(/\ARack(up)?::Handler::Firebrick\z/, name)
  end
end
