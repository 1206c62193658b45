# frozen_string_literal: true

# values.yaml, values.schema.json and the table of README.md have the same values.

require_relative "../../deploy/kube/lab/values"

class ChartValuesTest < Minitest::Test
  VALUES = Kubernetes::Values.new
  # Values with arbitrary keys, defined by Kubernetes or others.
  OPEN = %w[global strategy.rollingUpdate commonLabels service.annotations ingress.annotations httpRoute.annotations
            autoscaling.behavior.scaleUp autoscaling.behavior.scaleDown monitor.labels
            resources.requests resources.limits serviceAccount.annotations podSecurityContext securityContext podAnnotations podLabels
            nodeSelector affinity].freeze

  # The keys of objects in the schema, with their schemas.
  def self.described(schema = VALUES.schema, path = [])
    (schema["properties"] || {}).flat_map { |key, one| [[[*path, key].join("."), one], *described(one, [*path, key])] }.to_h
  end

  # The keys of a hash, and of all hashes in it.
  def self.keys(values, path = [])
    values.flat_map { |key, one| [[*path, key].join("."), *(keys(one, [*path, key]) if one.is_a?(Hash))] }
  end

  def test_each_value_has_a_comment
    assert_empty VALUES.undocumented
  end

  def test_each_comment_is_a_sentence_about_a_value_that_is_there
    VALUES.entries.each { |one| assert_match(/\A[A-Z`].*\.\z/, one.meaning, one.key) }
    assert_operator VALUES.entries.size, :>, 60
  end

  def test_the_table_is_that_of_the_comments
    assert_equal VALUES.table, VALUES.written, "run make docs-chart"
  end

  def test_each_value_is_in_the_schema
    described = self.class.described
    missing = self.class.keys(VALUES.defaults).reject { |key| described.key?(key) || OPEN.any? { |open| key.start_with?("#{open}.") } }
    assert_empty missing
  end

  def test_the_schema_describes_no_value_that_is_not_there
    inside = /\A(?:probes\.\w+\.|autoscaling\.behavior\.|resources\.)/
    extra = self.class.described.keys - self.class.keys(VALUES.defaults) - ["global"]
    assert_empty extra.grep_v(inside)
  end

  def test_the_schema_refuses_unknown_keys
    open = self.class.described.select { |_, one| Array(one["type"]).include?("object") && one["additionalProperties"] != false }
    assert_equal OPEN.sort, open.keys.sort
    refute VALUES.schema["additionalProperties"]
  end

  def test_the_version_is_that_of_the_server
    require_relative "../../worker/lib/firebrick/version"
    assert_equal Firebrick::VERSION, YAML.safe_load_file(File.join(Kubernetes::Chart::FOLDER, "Chart.yaml"))["appVersion"]
  end
end
