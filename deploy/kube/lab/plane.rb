# frozen_string_literal: true

require "fileutils"
require "securerandom"
require "socket"
require "tmpdir"
require_relative "api"
require_relative "certificates"
require_relative "schemas"

module Kubernetes
  # A control plane on 127.0.0.1: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, compiled from their public modules
  # (deploy/kube/go.mod). They are child processes of this one, with a folder that is removed when they have ended.
  class Plane
    # Seconds that a program may take to respond, on a busy machine.
    START_WITHIN = 120
    TOOLS = "k8s.io/kubernetes/cmd"
    # All programs that a run needs: module, package and name.
    PROGRAMS = { etcd: ["", "go.etcd.io/etcd/server/v3"], **%i[kube-apiserver kube-controller-manager kube-scheduler kubectl].to_h { |name| [name, ["", "#{TOOLS}/#{name}"]] },
                 helm: ["chart", "helm.sh/helm/v3/cmd/helm"] }.freeze

    # Returns the paths of a table's programs by name; compiles missing ones.
    def self.programs(cache, table = PROGRAMS)
      table.to_h { |name, (from, what, *flags)| [name, cache.program(from, what, name.to_s, flags: what.start_with?(TOOLS) ? version_flags : flags)] }
    end

    # Kubernetes reports its version only if the linker sets it.
    def self.version_flags
      major, minor = Schemas.version.scan(/\d+/)
      said = { gitVersion: Schemas.version, gitMajor: major, gitMinor: minor }.map { |name, value| "-X k8s.io/component-base/version.#{name}=#{value}" }
      ["-ldflags=-s -w #{said.join(' ')}"]
    end
    private_class_method :version_flags

    attr_reader :folder, :api, :kubeconfig, :certificates

    def initialize(cache)
      @programs = self.class.programs(cache)
      @folder = Dir.mktmpdir("kube")
      @certificates = Certificates.new(@folder)
      @token = SecureRandom.hex(16)
      @pids = {}
    end

    def start
      etcd = start_etcd
      @port = free_port
      @api = Api.new(address, token: @token, authority: @certificates.path("ca.crt"))
      write_kubeconfig
      start_apiserver(etcd)
      start_controllers
      self
    end

    def address = "https://127.0.0.1:#{@port}"

    # The variables that a client needs.
    def environment = { "KUBECONFIG" => @kubeconfig, "KUBE_ADDRESS" => address, "KUBE_TOKEN" => @token, "KUBE_CA" => @certificates.path("ca.crt") }

    # Runs kubectl or helm and returns its output. Fails unless it succeeds.
    def run(name, *words, input: nil)
      out, status = attempt(name, *words, input: input)
      raise Failure, "#{name} #{words.join(' ')} failed:\n#{out.lines.last(30).join}" unless status.success?

      out
    end

    # Does the same, and returns the status instead of failing.
    def attempt(name, *words, input: nil)
      home = { "HELM_CACHE_HOME" => @folder, "HELM_CONFIG_HOME" => @folder, "HELM_DATA_HOME" => @folder, "HOME" => @folder }
      Open3.capture2e(environment.merge(home), @programs.fetch(name), *words, stdin_data: input.to_s)
    end

    # Fails if a program has ended.
    def check
      ended = @pids.find { |_, pid| Process.wait(pid, Process::WNOHANG) } or return
      @pids.delete(ended.first)
      raise Failure, "#{ended.first} has ended:\n#{File.readlines(log(ended.first)).last(20).join}"
    end

    def stop
      @pids.keys.reverse_each do |name|
        pid = @pids.delete(name)
        Process.kill(:TERM, pid)
        deadline = now + 10
        sleep 0.05 until (gone = Process.wait(pid, Process::WNOHANG)) || now > deadline
        Process.kill(:KILL, pid) && Process.wait(pid) unless gone
      end
      FileUtils.rm_rf(@folder)
    end

    def free_port = TCPServer.open("127.0.0.1", 0) { |one| one.addr[1] }

    # Retries until the block raises no network error. what: the program that the block connects to.
    def wait_for(what)
      deadline = now + START_WITHIN
      begin
        check
        yield
      rescue SystemCallError, IOError, OpenSSL::SSL::SSLError, Timeout::Error, Api::Refused => e
        raise Failure, "#{what} does not answer after #{START_WITHIN} s: #{e.message}" if now > deadline

        sleep 0.2
        retry
      end
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def log(name) = File.join(@folder, "#{name}.log")

    def launch(name, *flags)
      @pids[name] = Process.spawn(@programs.fetch(name), *flags, in: File::NULL, %i[out err] => log(name), chdir: @folder)
    end

    def start_etcd
      clients, peers = Array.new(2) { "http://127.0.0.1:#{free_port}" }
      launch(:etcd, "--name=one", "--data-dir=#{@folder}/etcd", "--listen-client-urls=#{clients}", "--advertise-client-urls=#{clients}",
             "--listen-peer-urls=#{peers}", "--initial-advertise-peer-urls=#{peers}", "--initial-cluster=one=#{peers}",
             "--unsafe-no-fsync", "--log-level=warn")
      uri = URI(clients)
      wait_for("etcd") { TCPSocket.open(uri.host, uri.port, &:close) }
      clients
    end

    def start_apiserver(etcd)
      @certificates.issue("apiserver", usage: "serverAuth")
      @certificates.issue("aggregator", usage: "clientAuth")
      File.write(File.join(@folder, "tokens.csv"), "#{@token},admin,admin,system:masters\n", perm: 0o600)
      file = @certificates.method(:path)
      launch(:"kube-apiserver", "--etcd-servers=#{etcd}", "--bind-address=127.0.0.1", "--secure-port=#{@port}", "--external-hostname=localhost",
             "--advertise-address=10.0.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
             "--tls-cert-file=#{file['apiserver.crt']}", "--tls-private-key-file=#{file['apiserver.key']}", "--client-ca-file=#{file['ca.crt']}",
             "--token-auth-file=#{file['tokens.csv']}", "--authorization-mode=RBAC",
             "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=#{file['accounts.key']}",
             "--service-account-signing-key-file=#{file['accounts.key']}", "--requestheader-client-ca-file=#{file['ca.crt']}",
             "--requestheader-allowed-names=aggregator", "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
             "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--kubelet-preferred-address-types=InternalIP", "--proxy-client-cert-file=#{file['aggregator.crt']}",
             "--proxy-client-key-file=#{file['aggregator.key']}")
      wait_for("kube-apiserver") { @api.get("/readyz") }
    end

    def start_controllers
      common = ["--kubeconfig=#{@kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"]
      launch(:"kube-controller-manager", *common, "--service-account-private-key-file=#{@certificates.path('accounts.key')}", "--root-ca-file=#{@certificates.path('ca.crt')}")
      launch(:"kube-scheduler", *common)
      # A controller creates this account.
      wait_for("kube-controller-manager") { @api.get("/api/v1/namespaces/default/serviceaccounts/default") }
    end

    def write_kubeconfig
      @kubeconfig = File.join(@folder, "kubeconfig")
      config = { "apiVersion" => "v1", "kind" => "Config", "current-context" => "one",
                 "clusters" => [{ "name" => "one", "cluster" => { "server" => address, "certificate-authority" => @certificates.path("ca.crt") } }],
                 "users" => [{ "name" => "admin", "user" => { "token" => @token } }],
                 "contexts" => [{ "name" => "one", "context" => { "cluster" => "one", "user" => "admin" } }] }
      File.write(@kubeconfig, JSON.generate(config), perm: 0o600)
    end
  end
end
