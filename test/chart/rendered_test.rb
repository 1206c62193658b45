# frozen_string_literal: true

# The output of the chart: valid for Kubernetes, allowed for `restricted` pods, and understood by servers.

require "minitest"
require "open3"
require "tmpdir"
require_relative "../../deploy/kube/lab/chart"

class ChartRenderedTest < Minitest::Test
  ROOT = Kubernetes::ROOT
  PROGRAM = ENV["FIREBRICK"] || File.join(ROOT, "target/release/firebrick")
  FILES = Dir[File.join(Kubernetes::Chart::FOLDER, "ci/*-values.yaml")].sort.to_h { |file| [File.basename(file, "-values.yaml"), YAML.safe_load_file(file)] }.freeze
  LEAST = FILES.fetch("least")
  KINDS = {
    "least" => %w[Deployment NetworkPolicy PodDisruptionBudget Service],
    "hpa" => %w[ConfigMap Deployment HorizontalPodAutoscaler Ingress NetworkPolicy PodDisruptionBudget Service Service ServiceMonitor],
    "keda" => %w[Deployment HTTPRoute NetworkPolicy PodDisruptionBudget PodMonitor ScaledObject Secret Service Service ServiceAccount TriggerAuthentication]
  }.freeze

  class << self
    def chart = @chart ||= Kubernetes::Chart.new

    def finish = @chart&.close
  end
  Minitest.after_run { finish }

  def setup
    skip "Go 1.26 or later was not found: the chart was neither rendered nor checked. Install it, or name it in GO" unless Kubernetes::Cache.go?
  end

  # Renders values that must be accepted.
  def render(values, **options)
    answer = self.class.chart.render(values, **options)
    assert_nil answer.error
    assert_empty answer.lint
    assert_empty answer.invalid
    answer
  end

  def least(**more) = merge(LEAST, JSON.parse(JSON.generate(more)))

  def merge(one, other) = one.merge(other) { |_, a, b| a.is_a?(Hash) && b.is_a?(Hash) ? merge(a, b) : b }

  def pod(answer) = answer["Deployment"].dig("spec", "template", "spec")

  def server(answer) = pod(answer).fetch("containers").first

  def refused(values) = self.class.chart.render(values).error || flunk("#{values} is not refused")

  FILES.each do |name, values|
    define_method(:"test_#{name}_is_linted_and_conforms") do
      answer = render(values)
      assert_equal KINDS.fetch(name), answer.objects.map { |one| one["kind"] }.sort
      assert_equal answer.objects.size, answer.valid
    end

    define_method(:"test_#{name}_is_restricted") do
      spec = pod(render(values))
      assert_empty spec.slice("hostNetwork", "hostPID", "hostIPC")
      assert_equal({ "runAsNonRoot" => true, "seccompProfile" => { "type" => "RuntimeDefault" } }, spec["securityContext"].slice("runAsNonRoot", "seccompProfile"))
      refute spec["automountServiceAccountToken"]
      assert_empty(spec["volumes"].reject { |volume| (volume.keys - ["name"]).first.match?(/\A(?:emptyDir|configMap|persistentVolumeClaim)\z/) })
      context = spec["containers"].first["securityContext"]
      assert_equal({ "allowPrivilegeEscalation" => false, "readOnlyRootFilesystem" => true, "capabilities" => { "drop" => ["ALL"] } }, context)
    end

    define_method(:"test_#{name}_leaves_politely") do
      answer = render(values)
      refute_match(/preStop/, YAML.dump(answer.objects))
      flags = server(answer)["args"].join(" ")
      seconds = %w[lame-duck shutdown-timeout].sum { |flag| Integer(flags[/--#{flag}=(\d+)s/, 1]) }
      assert_operator pod(answer)["terminationGracePeriodSeconds"], :>, seconds
      strategy = answer["Deployment"].dig("spec", "strategy", "rollingUpdate")
      assert_equal [1, 0], strategy.values_at("maxSurge", "maxUnavailable")
    end

    define_method(:"test_#{name}_is_probed_where_the_server_answers") do
      container = server(render(values))
      assert_includes container["args"], "--live-path=#{container.dig('livenessProbe', 'httpGet', 'path')}"
      assert_includes container["args"], "--live-path=#{container.dig('startupProbe', 'httpGet', 'path')}"
      assert_includes container["args"], "--ready-path=#{container.dig('readinessProbe', 'httpGet', 'path')}"
      ports = container["ports"].to_h { |port| port.values_at("name", "containerPort") }
      assert_includes container["args"].join(" "), "--bind=tcp://[::]:#{ports.fetch('http')}"
      assert_equal "http", container.dig("readinessProbe", "httpGet", "port")
    end

    define_method(:"test_#{name}_is_understood_by_the_server") do
      answer = render(values)
      Dir.mktmpdir("chart") do |dir|
        File.write(File.join(dir, "config.ru"), "run ->(_) { [200, {}, []] }")
        File.write(File.join(dir, "firebrick.toml"), answer["ConfigMap"].dig("data", "firebrick.toml")) if answer["ConfigMap"]
        args = server(answer)["args"].map { |arg| arg.sub("/etc/firebrick", dir) }
        env = { "FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(ROOT, "worker/lib"), "FIREBRICK_CONTROL_TOKEN" => "t" * 16, "TMPDIR" => dir }
        out, status = Open3.capture2e(env, PROGRAM, "check", *args, chdir: dir)
        assert_predicate status, :success?, "firebrick check #{args.join(' ')}\n#{out}"
      end
    end
  end

  def test_the_values_of_the_documents_are_good
    page = File.read(File.join(ROOT, "docs/kubernetes.md")).gsub(/^ {4}/, "")
    given = YAML.safe_load(page[/^cat > values\.yaml <<'YAML'\n(.*?)^YAML$/m, 1])
    assert_equal "hello-firebrick", render(given, name: "hello")["Deployment"].dig("metadata", "name")
    more = page.scan(/^(?:ingress|httpRoute):\n(?: .*\n)+/).map { |text| YAML.safe_load(text) }
    assert_equal %w[Ingress HTTPRoute].sort, more.flat_map { |values| render(merge(given, values)).objects.map { |one| one["kind"] } }.tally.select { |kind, _| %w[Ingress HTTPRoute].include?(kind) }.keys.sort
  end

  def test_what_is_planned_can_be_installed
    plan = ["plan", "--rate", "300/s", "--response-time", "100ms", "--cpu-time", "5ms", "--workers", "2", "--threads", "5", "--cores", "1.5", "--helm"]
    [[], ["--fibers", "100", "--slo", "p95<1s", "--average-rate", "20/s"]].each do |more|
      out, status = Open3.capture2({ "FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(ROOT, "worker/lib") }, PROGRAM, *plan, *more)
      assert_predicate status, :success?
      planned = YAML.safe_load(out)
      answer = render(merge(LEAST, planned))
      assert_equal planned["replicas"], answer["Deployment"].dig("spec", "replicas")
      assert_equal "1500m", server(answer).dig("resources", "limits", "cpu")
      assert_includes server(answer)["args"], "--workers=2"
    end
  end

  def test_the_grace_period_is_the_sum
    answer = render(least(server: { lameDuckSeconds: 11, shutdownSeconds: 47, slackSeconds: 3 }))
    assert_equal 61, pod(answer)["terminationGracePeriodSeconds"]
  end

  def test_an_autoscaler_sets_the_number_of_pods
    assert_equal 2, render(LEAST)["Deployment"].dig("spec", "replicas")
    answer = render(FILES["hpa"])
    refute answer["Deployment"]["spec"].key?("replicas")
    scaler = answer["HorizontalPodAutoscaler"]["spec"]
    assert_equal answer["Deployment"].dig("metadata", "name"), scaler.dig("scaleTargetRef", "name")
    metric = scaler["metrics"].first["pods"]
    assert_equal [{ "name" => "firebrick_saturation" }, "0.7"], [metric["metric"], metric.dig("target", "averageValue")]
  end

  def test_keda_reads_each_pod_with_the_token
    answer = render(FILES["keda"], namespace: "stores")
    trigger = answer["ScaledObject"].dig("spec", "triggers").first
    control = answer.objects.find { |one| one["kind"] == "Service" && one.dig("spec", "clusterIP") == "None" }
    assert_equal "http://#{control.dig('metadata', 'name')}.stores.svc:9293/metrics", trigger.dig("metadata", "url")
    assert_equal answer["TriggerAuthentication"].dig("metadata", "name"), trigger.dig("authenticationRef", "name")
    reference = answer["TriggerAuthentication"].dig("spec", "secretTargetRef").first
    assert_equal "a-token-for-a-trial", answer["Secret"]["stringData"].fetch(reference["key"])
    assert_equal answer["Secret"].dig("metadata", "name"), reference["name"]
  end

  def test_a_token_is_in_its_secret_only
    answer = render(FILES["keda"])
    others = answer.objects.reject { |one| one["kind"] == "Secret" }
    refute_match(/a-token-for-a-trial/, YAML.dump(others) + answer.rendered.fetch("NOTES.txt"))
  end

  def test_services_and_policies_select_the_pods
    FILES.each_value do |values|
      answer = render(values)
      labels = answer["Deployment"].dig("spec", "template", "metadata", "labels")
      selectors = answer.objects.filter_map do |one|
        case one["kind"]
        when "Service" then one.dig("spec", "selector")
        when "NetworkPolicy" then one.dig("spec", "podSelector", "matchLabels")
        when "Deployment", "PodDisruptionBudget", "PodMonitor" then one.dig("spec", "selector", "matchLabels")
        end
      end
      selectors.each { |selector| assert_operator labels, :>=, selector }
      monitor = answer["ServiceMonitor"] or next
      selected = answer.objects.select { |one| one["kind"] == "Service" && one.dig("metadata", "labels") >= monitor.dig("spec", "selector", "matchLabels") }
      assert_equal(["None"], selected.map { |one| one.dig("spec", "clusterIP") })
    end
  end

  def test_nobody_reaches_the_control_port_who_is_not_named
    ports = ->(values) { render(values)["NetworkPolicy"].dig("spec", "ingress").to_h { |rule| [rule["ports"].first["port"], rule["from"]] } }
    assert_equal({ "http" => nil }, ports.call(least(control: { enabled: true, existingSecret: "shop" })))
    assert_equal %w[http control], ports.call(FILES["hpa"]).keys
    assert_equal FILES["hpa"]["networkPolicy"]["controlFrom"], ports.call(FILES["hpa"])["control"]
  end

  def test_other_settings_are_other_pods
    sums = %w[10 20].map { |size| render(least(server: { config: "[limits]\nmax_body = #{size}\n" }))["Deployment"].dig("spec", "template", "metadata", "annotations", "checksum/config") }
    assert_equal 2, sums.uniq.size
  end

  def test_pods_do_not_keep_a_node
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    annotations = ->(more) { render(least(podAnnotations: more))["Deployment"].dig("spec", "template", "metadata", "annotations") }
    assert_equal({ key => "tmp" }, annotations.call({}))
    assert_equal({ key => "tmp", "a" => "b" }, annotations.call({ a: "b" }))
    assert_equal({ key => "other" }, annotations.call({ key => "other" }))
  end

  def test_pods_that_are_replaced_do_not_count_where_new_ones_are_placed
    spread = ->(values) { render(values)["Deployment"].dig("spec", "template", "spec", "topologySpreadConstraints") }
    assert_equal([["pod-template-hash"]] * 2, spread.call(least).map { |one| one["matchLabelKeys"] })
    assert_equal FILES["keda"]["topologySpreadConstraints"], spread.call(FILES["keda"])
  end

  def test_long_names_fit
    names = render(FILES["keda"].except("fullnameOverride"), name: "a" * 53).objects.map { |one| one.dig("metadata", "name") }
    assert_operator names.map(&:size).max, :<=, 63
  end

  {
    "a key that does not exist" => [{ replica: 3 }, /'?replica'?/],
    "a key in a section that does not exist" => [{ autoscaling: { knd: "hpa" } }, /autoscaling.*knd/m],
    "a value of another type" => [{ server: { port: "http" } }, %r{server[./]port.*integer}m],
    "a kind that does not exist" => [{ autoscaling: { kind: "vpa" } }, /autoscaling.kind.*hpa/m],
    "a short token" => [{ control: { enabled: true, token: "short" } }, /control.token/],
    "a control port without a token" => [{ control: { enabled: true } }, /control\.existingSecret/],
    "two tokens" => [{ control: { enabled: true, token: "a" * 16, existingSecret: "a" } }, /control\.token are both set/],
    "an autoscaler without a control port" => [{ autoscaling: { kind: "hpa" } }, /autoscaling\.kind is hpa.*control\.enabled/],
    "a monitor without a control port" => [{ monitor: { kind: "PodMonitor" } }, /monitor\.kind is PodMonitor.*control\.enabled/],
    "more pods at least than at most" => [{ autoscaling: { minReplicas: 5, maxReplicas: 4 } }, /minReplicas is 5 and maxReplicas 4/],
    "one port for both" => [{ control: { port: 9292 } }, /both 9292/],
    "a route to no gateway" => [{ httpRoute: { enabled: true } }, /httpRoute\.parentRefs/],
    "an ingress without a host" => [{ ingress: { enabled: true } }, /ingress\.hosts/]
  }.each do |what, (values, message)|
    define_method(:"test_#{what.tr(" ", "_")}_is_refused") { assert_match(message, refused(least(**values))) }
  end

  def test_an_image_has_to_be_named
    assert_match(/image\.repository is empty/, refused({}))
  end

  # That what conforms is looked at.
  {
    "a field that does not exist" => ->(one) { one["spec"]["replica"] = 3 },
    "a field deep inside that does not exist" => ->(one) { one.dig("spec", "template", "spec", "containers", 0, "ports", 0)["containerport"] = 1 },
    "a value of another type" => ->(one) { one["spec"]["replicas"] = "two" },
    "a field that is missing" => ->(one) { one["spec"].delete("selector") },
    "a version that does not exist" => ->(one) { one["apiVersion"] = "apps/v9" }
  }.each do |what, damage|
    define_method(:"test_#{what.tr(" ", "_")}_does_not_conform") do
      object = render(LEAST)["Deployment"]
      assert_equal [1, []], self.class.chart.check(YAML.dump(object)).to_h.values_at(:valid, :invalid)
      damage.call(object)
      assert_equal 1, self.class.chart.check(YAML.dump(object)).invalid.size
    end
  end

  def test_objects_of_other_projects_are_checked
    answer = render(FILES["keda"])
    %w[ScaledObject HTTPRoute PodMonitor TriggerAuthentication].each do |kind|
      object = answer[kind]
      object["spec"]["nonsense"] = true
      assert_equal 1, self.class.chart.check(YAML.dump(object)).invalid.size, kind
    end
  end
end
