# frozen_string_literal: true

# Releases: the version is the same everywhere, `script/release` in clones of this checkout, the bill of materials, the licences, and packages
# that have the same bytes wherever they are made.
#
# RELEASE_PACKAGES  the packages that are made twice ("tarball gem"; "tarball gem deb" needs cargo-deb, and minutes)

require "etc"
require "open3"
require "yaml"
require "support/case"
require_relative "../script/packages/dependencies"
require_relative "../script/packages/versions"

class ReleaseTest < Case
  parallel!(slow: 40)

  ROOT = Server::ROOT

  def setup
    firebrick_only
    @dir = File.realpath(Dir.mktmpdir("firebrick-release"))
  end

  def teardown
    FileUtils.remove_entry(@dir) if @dir
  end

  def run!(*command, dir: ROOT, env: {})
    out, status = Open3.capture2e(env, *command, chdir: dir)
    assert status.success?, "#{command.join(' ')}\n#{out}"
    out
  end

  # A repository with the files of this checkout, committed.
  def clone
    folder = File.join(@dir, "clone")
    sources.each { |name| FileUtils.mkdir_p(File.dirname(File.join(folder, name))) && FileUtils.cp(File.join(ROOT, name), File.join(folder, name)) }
    run!("git", "init", "--quiet", folder)
    %w[user.name user.email].each { |key| run!("git", "config", key, "release@example.com", dir: folder) }
    run!("git", "add", "--all", "--force", dir: folder)
    run!("git", "commit", "--quiet", "--no-gpg-sign", "-m", "All", dir: folder)
    folder
  end

  # The checkout may belong to another user, or come without git's files.
  def sources
    out, _, status = Open3.capture3("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard", chdir: ROOT)
    skip "this checkout is not in git" unless status.success?
    out.split("\0").select { |name| File.file?(File.join(ROOT, name)) }
  end

  def release(folder, *words, env: {})
    out, status = Open3.capture2e({ "RELEASE_DATE" => "2031-02-03", "SOURCE_DATE_EPOCH" => nil, **env }, "script/release", *words, chdir: folder)
    [status.exitstatus, out]
  end

  def rewrite(folder, name)
    path = File.join(folder, name)
    text = File.read(path)
    File.write(path, (yield text).tap { |changed| refute_equal text, changed })
  end

  it "has one version everywhere" do
    found = Packages::Versions.new.found
    assert_equal [Packages::Versions.new.current], found.map(&:last).uniq, found.inspect
    assert_empty found.map(&:first) - Packages::Versions.new.files
    assert_operator found.count { |file, _| file == "Cargo.lock" }, :>, 40
    assert_match(/^## #{Regexp.escape(Packages::Versions.new.current)} \(/, File.read(File.join(ROOT, "CHANGELOG.md")))
  end

  it "prepares a release: versions, the date in the changelog, nothing committed" do
    folder = clone
    rewrite(folder, "CHANGELOG.md") { |text| text.sub(/^## .*$/, "## Unreleased") }
    run!("git", "commit", "--quiet", "--no-gpg-sign", "-am", "New", dir: folder)
    status, out = release(folder, "prepare", "7.8.9")
    assert_equal 0, status, out
    versions = Packages::Versions.new(folder)
    assert_equal [["7.8.9"], "2031-02-03"], [versions.found.map(&:last).uniq, versions.date.iso8601]
    changed = run!("git", "status", "--porcelain", dir: folder).lines.map { |line| line[3..].chomp }
    assert_empty changed - versions.files
    %w[CHANGELOG.md Cargo.lock Cargo.toml deploy/chart/Chart.yaml worker/lib/firebrick/version.rb docs/installing.md].each { |name| assert_includes changed, name }
    run!("cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--no-deps", dir: folder)
    assert_equal 0, release(folder, "prepare", "7.8.9").first, "a second time"
    status, out = release(folder, "prepare", "7.8.8")
    assert_equal 1, status
    assert_match(/7\.8\.8 is older than 7\.8\.9/, out)
  end

  it "refuses what is no release, and says why" do
    folder = clone
    { ["prepare", "1.2"] => /VERSION=1\.2: expected a version of SemVer/, %w[prepare 0.0.1] => /0\.0\.1 is older/, %w[prepare 9.0.0] => /CHANGELOG\.md has no section "## 9\.0\.0 \(unreleased\)"/,
      %w[finish 9.0.0] => /the tree has version .*prepare 9\.0\.0/, %w[publish 9.0.0] => /Usage/, [] => /Usage/ }.each do |words, expected|
      status, out = release(folder, *words)
      assert_equal [1, true], [status, out.match?(expected)], "#{words}: #{out}"
    end
    current = Packages::Versions.new.current
    run!("git", "tag", "v#{current}", dir: folder)
    assert_match(/the tag v.* exists/, release(folder, "prepare", current).last)
    run!("git", "tag", "-d", "v#{current}", dir: folder)
    File.write(File.join(folder, "stray"), "")
    assert_match(/the tree is not clean: commit or stash stray/, release(folder, "prepare", current).last)
    assert_match(%r{dist/ has no package}, release(folder, "finish", current).last)
  end

  it "finishes a release: bill of materials, licences, checksums, the commands" do
    folder = clone
    version = Packages::Versions.new.current
    FileUtils.mkdir_p(File.join(folder, "dist"))
    { "firebrick-#{version}-x86_64-linux.tar.gz" => "tar", "firebrick_#{version}_amd64.deb" => "deb", "firebrick-#{version}-x86_64-linux.debug" => "no", "firebrick-0.0.1.gem" => "no" }
      .each { |name, text| File.write(File.join(folder, "dist", name), text) }
    status, out = release(folder, "finish", version)
    assert_equal 0, status, out
    assert_includes out, "git tag -s v#{version}"
    sums = File.readlines(File.join(folder, "dist/SHA256SUMS"), chomp: true).to_h { |line| line.split("  ").reverse }
    platform = "firebrick-#{version}-#{Etc.uname[:machine]}-linux"
    assert_equal ["#{platform}.cdx.json", "#{platform}.licences.txt", "firebrick-#{version}-x86_64-linux.tar.gz", "firebrick_#{version}_amd64.deb"].sort, sums.keys.sort
    run!("sha256sum", "--check", "--strict", "SHA256SUMS", dir: File.join(folder, "dist"))
    assert_empty run!("git", "status", "--porcelain", dir: folder)
  end

  it "lists what is in the packages, in CycloneDX" do
    env = { "SOURCE_DATE_EPOCH" => "1900000000" }
    text = run!("script/sbom", env: env)
    assert_equal text, run!("script/sbom", env: env), "the same bytes"
    bom = JSON.parse(text)
    assert_equal ["CycloneDX", "1.5", 1, "2030-03-17T17:46:40Z"], [*bom.values_at("bomFormat", "specVersion", "version"), bom.dig("metadata", "timestamp")]
    assert_match(/\Aurn:uuid:\h{8}-\h{4}-[1-5]\h{3}-[89ab]\h{3}-\h{12}\z/, bom["serialNumber"])
    main = bom.dig("metadata", "component")
    assert_equal ["application", "firebrick", Packages::Versions.new.current], main.values_at("type", "name", "version")
    refs = bom["components"].map { |one| one["bom-ref"] }
    assert_equal refs.uniq, refs
    bom["components"].each do |one|
      assert_equal "library", one["type"]
      %w[name version purl bom-ref].each { |key| assert_match(/\S/, one[key], one.inspect) }
      assert_match(/\A[\w.()+ -]+\z/, one["licenses"].first["expression"], one["name"])
      assert_match(%r{\Apkg:(cargo|generic)/[\w.+-]+@[\w.+-]+\z}, one["purl"])
    end
    assert_equal [main["bom-ref"], *refs].sort, bom["dependencies"].map { |one| one["ref"] }.sort
    assert_empty bom["dependencies"].flat_map { |one| one["dependsOn"] } - refs
    names = bom["components"].map { |one| one["name"] }
    assert_empty %w[tokio rustls quinn aws-lc aws-lc-sys zstd mimalloc rb-sys] - names
    assert_includes names, "mruby" if File.exist?(Packages::Dependencies::MRUBY)
    assert_empty names & %w[proptest bindgen serde_derive cc]
    lock = File.read(File.join(ROOT, "Cargo.lock"))
    bom["components"].select { |one| one["purl"].start_with?("pkg:cargo/") }.each do |one|
      assert_includes lock, "name = \"#{one['name']}\"\nversion = \"#{one['version']}\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"#{one['hashes'].first['content']}\""
    end
  end

  it "lists what is in the packages for another system" do
    names = %w[aarch64-unknown-linux-gnu x86_64-unknown-linux-musl].to_h do |target|
      env = { "SOURCE_DATE_EPOCH" => "1900000000", "DIST_TARGET" => target }
      [target, JSON.parse(run!("script/sbom", env: env))["components"].map { |one| one["name"] }]
    end
    names.each_value { |list| assert_empty %w[tokio rustls aws-lc mimalloc] - list }
    assert_includes names["aarch64-unknown-linux-gnu"], "mruby" if File.exist?(Packages::Dependencies::MRUBY)
    refute_includes names["x86_64-unknown-linux-musl"], "mruby", "Debian's library is of glibc"
  end

  it "refuses systems for which nothing can be made, and packages that a system does not have" do
    { ["sparc64", []] => /DIST_TARGET=sparc64: expected x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu, x86_64-unknown-linux-musl/,
      ["x86_64-unknown-linux-musl", %w[deb]] => /there is no package deb for x86_64-unknown-linux-musl; there are tarball, gem, image/ }.each do |(target, words), expected|
      out, status = Open3.capture2e({ "DIST_TARGET" => target, "PROFILE" => "none" }, "script/dist", *words, chdir: ROOT)
      assert_equal [1, true], [status.exitstatus, out.match?(expected)], out
    end
  end

  it "has the licence of every library, with its text" do
    text = run!("script/sbom", "licences")
    dependencies = Packages::Dependencies.new
    [*dependencies.crates, *dependencies.libraries].each { |one| assert_includes text, "\n#{one.name} #{one.version}: #{one.license}\n" }
    assert_operator text.scan(/^={79}$/).size, :>, 50
    assert_includes text, "mimalloc"
    # The sources of these have none.
    assert_operator Packages::Dependencies.new.crates.count { |crate| !text.match?(/^={79}\n.*\b#{Regexp.escape(crate.name)} #{Regexp.escape(crate.version)}\b/) }, :<, 5
  end

  it "is built, signed and attested by a workflow whose actions are pinned to commits" do
    text = File.read(File.join(ROOT, ".github/workflows/release.yml"))
    uses = text.scan(/uses: (\S+)(.*)$/)
    assert_operator uses.size, :>=, 5
    uses.each { |action, comment| assert_match(%r{\A[\w-]+/[\w-]+@\h{40} # v\d+\.\d+\.\d+\z}, "#{action}#{comment}") }
    jobs = YAML.safe_load(text).fetch("jobs")
    assert_equal({ "contents" => "write", "id-token" => "write", "attestations" => "write" }, jobs["draft"]["permissions"])
    commands = jobs.values.flat_map { |job| job["steps"].filter_map { |step| step["run"] } }
    ["script/release finish", "cosign sign-blob", "gh release create"].each { |words| assert(commands.any? { |command| command.include?(words) }, words) }
  end

  # A small program that runs the real one, whose 47 MB take half a minute to compress.
  def compile_stand_in(path)
    source = "#include <unistd.h>\nint main(int count, char **words) { return execv(#{Server.binary.to_json}, words); }\n"
    File.write("#{path}.c", source)
    run!("cc", "-g", "-o", path, "#{path}.c")
    File.delete("#{path}.c")
  end

  it "makes packages with the same bytes in another folder" do
    skip "objcopy is not installed (script/setup dist)" unless system("which objcopy", out: File::NULL)
    native = File.join(ROOT, "worker/lib/firebrick/native.so")
    skip "there is no native part of the worker (make build)" unless File.file?(native)
    folder = clone
    target = FileUtils.mkdir_p(File.join(@dir, "target/dist")).first
    run!("objcopy", "--strip-all", native, File.join(target, "libfirebrick_worker.so"))
    compile_stand_in(File.join(target, "firebrick"))
    out = run!("script/reproducible", "--program", File.dirname(target), dir: folder, env: { "PACKAGES" => ENV.fetch("RELEASE_PACKAGES", "tarball gem"), "SOURCE_DATE_EPOCH" => nil })
    assert_match(/^\h{64}  firebrick-[\d.]+-\w+-linux\.tar\.gz$/, out)
    assert_includes out, "identical"
  end
end
