# frozen_string_literal: true

require "etc"

module Packages
  # The system that packages are made for: this machine's, or the one that DIST_TARGET names, in rustc's words.
  class Target
    # By rustc's name: the machine, Debian's name of it, and whether its C library is musl.
    KNOWN = {
      "x86_64-unknown-linux-gnu" => ["x86_64", "amd64", false],
      "aarch64-unknown-linux-gnu" => ["aarch64", "arm64", false],
      "x86_64-unknown-linux-musl" => ["x86_64", "amd64", true],
      "aarch64-unknown-linux-musl" => ["aarch64", "arm64", true]
    }.freeze

    def self.own = "#{Etc.uname[:machine]}-unknown-linux-gnu"

    attr_reader :triple, :machine, :architecture

    def initialize(triple = ENV.fetch("DIST_TARGET", ""))
      @triple = triple.empty? ? Target.own : triple
      @machine, @architecture, @musl = KNOWN.fetch(@triple) { raise Failure, "DIST_TARGET=#{triple}: expected #{KNOWN.keys.join(', ')}" }
    end

    def musl? = @musl

    # Whether packages are compiled for it here, but not for this machine's own system.
    def foreign? = @triple != Target.own

    # Returns the packages that are made for it. An image is made on a machine of its processor.
    def packages
      return %w[tarball gem deb image] unless foreign?

      ["tarball", "gem", *("deb" unless @musl), *("image" if @musl && @machine == Etc.uname[:machine])]
    end

    # As tarballs and gems name it: x86_64-linux, aarch64-linux-musl.
    def platform = "#{@machine}-linux#{'-musl' if @musl}"

    # A program of binutils, or a compiler, for it.
    def tool(name) = foreign? ? "#{@machine}-linux-gnu-#{name}" : name
  end
end
