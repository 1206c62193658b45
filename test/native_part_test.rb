# frozen_string_literal: true

# Packages for other Rubies than the running one, and without a native part of the worker: the worker in plain Ruby serves, and says so.

require "fileutils"
require "open3"
require "net/http"
require "support/case"
require "support/ruby_program"

class NativePartTest < Case
  parallel!

  APP = "run ->(env) { [200, {}, [Firebrick.const_defined?(:Pure).to_s, env['rack.input'].read]] }"
  PROGRAM = "require 'firebrick/server'; Firebrick::Server.new(->(_) { [200, {}, []] }, port: 0).start"
  # The library of the package, and the reason that is expected.
  PACKAGES = { nil => /there is no native part of the worker/, "9.9" => /a native part for workers of Ruby 9\.9, and this is Ruby \d+\.\d+\.\d+/ }.freeze
  ADVICE = "with Rust, `gem install firebrick --platform ruby` compiles one"

  def setup
    firebrick_only
    skip "the native part is CRuby's" if !Server.cruby? || ENV["FIREBRICK_PURE"] == "1"
    @dir = Dir.mktmpdir("firebrick-lib")
  end

  def teardown
    FileUtils.rm_rf(@dir) if @dir
  end

  PACKAGES.each do |abi, reason|
    package = abi ? "a package for Ruby #{abi}" : "a package without a native part"

    { "threads" => {}, "fibers" => { fibers: 10, threads: "1:1" }, "YJIT" => { args: ["--yjit", "on"] } }.each do |mode, options|
      it "serves by #{package}, with #{mode}" do
        own = start(app: APP, env: { "FIREBRICK_LIB" => lib(abi) }, workers: 2, **options)
        4.times { assert_equal "trueupload", Net::HTTP.post(URI(own.url), "upload").body }
        assert_equal 1, own.stderr.scan(/^firebrick: (.*)$/).flatten.grep(reason).grep(/takes about five times .*#{ADVICE}\z/).size, own.stderr
      end
    end

    it "is refused as a server in the app's process, by #{package}" do
      out, = ruby(lib(abi), "-e", PROGRAM)
      assert_match(reason, out)
      assert_match(/A server in the app's process needs it; #{ADVICE}\. The program `firebrick` serves the app without it/, out)
    end

    it "serves `rackup` of development as the program, by #{package}" do
      program = RubyProgram.new(command: RubyProgram.rackup("-p", "0", lib: lib(abi)),
                                env: { "FIREBRICK_LIB" => File.join(@dir, "lib"), "RUBYLIB" => nil }, files: { "config.ru" => APP })
      assert_equal "trueupload", Net::HTTP.post(URI("http://localhost:#{program.port}/"), "upload").body
      assert_match(reason, program.output)
      assert_match(/Environment: development/, program.output)
    ensure
      program&.finish
    end
  end

  private

  def ruby(lib, *words)
    Open3.capture2e({ **RubyProgram.environment, "XDG_RUNTIME_DIR" => @dir, "FIREBRICK_LIB" => lib }, ENV.fetch("RUBY", "ruby"), "-I", lib, *words)
  end

  # A copy of the Ruby files, with a library for that ABI that cannot be loaded.
  def lib(abi)
    folder = File.join(@dir, "lib")
    FileUtils.cp_r(RubyProgram::LIB, folder)
    FileUtils.rm_f(Dir[File.join(folder, "firebrick/native.*")] - [File.join(folder, "firebrick/native.rb")])
    if abi
      FileUtils.mkdir_p(File.join(folder, "firebrick", abi))
      File.write(File.join(folder, "firebrick", abi, "native.so"), "")
    end
    folder
  end
end
