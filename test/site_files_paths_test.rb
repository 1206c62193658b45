# frozen_string_literal: true

# Mapping of paths to static files: media types, directories, names.

require "support/site_files_case"

class SiteFilesPathsTest < SiteFilesCase
  # --- types

  { "page.html" => %r{\Atext/html; ?charset=utf-8\z}i, "text.txt" => %r{\Atext/plain; ?charset=utf-8\z}i, "style.css" => %r{\Atext/css\b}, "code.js" => %r{\A(text|application)/javascript\b}, "data.json" => %r{\Aapplication/json\b},
    "image.svg" => %r{\Aimage/svg\+xml\b}, "image.png" => %r{\Aimage/png\z}, "photo.jpg" => %r{\Aimage/jpeg\z}, "font.woff2" => %r{\Afont/woff2\z}, "data.xml" => %r{\A(text|application)/xml\b}, "code.wasm" => %r{\Aapplication/wasm\z},
    "icon.ico" => %r{\Aimage/(x-icon|vnd.microsoft.icon)\z}, "film.mp4" => %r{\Avideo/mp4\z}, "paper.pdf" => %r{\Aapplication/pdf\z}, "UPPER.HTML" => %r{\Atext/html\b}, "picture.webp" => %r{\Aimage/webp\z},
    "archive.tar.gz" => %r{\Aapplication/(x-)?(gzip|octet-stream)\z}, "no-extension" => %r{\A(application/octet-stream|text/plain)\b} }.each do |file, type|
    it "sends the type of #{file}" do
      assert_match type, get("/#{file}")["content-type"]
    end
  end

  # --- directories

  it "serves / with index.html" do
    response = get("/")
    assert_equal "<p>home", response.body
    assert_match(%r{\Atext/html}, response["content-type"])
  end

  it "serves a directory with its index.html" do
    assert_equal "<p>dir", get("/dir/").body
    assert_equal "<p>dir", get("/dir/?x=1").body
    assert_status 304, get("/dir/", headers: { "If-None-Match" => get("/dir/")["etag"] })
  end

  { "/dir" => "/dir/", "/dir?a=1&b=%2F" => "/dir/?a=1&b=%2F", "/with%20space" => "/with%20space/", "/caf%C3%A9" => "/caf%C3%A9/", "/what%3F" => "/what%3F/", "/50%25" => "/50%25/",
    "/evil.test" => "/evil.test/" }.each do |path, location|
    it "redirects #{path} to #{location}" do
      assert_redirect location, get(path)
    end
  end

  it "redirects a directory without an index to its slash, or hides it" do
    { "/dir/deep" => "/dir/deep/", "/noindex" => "/noindex/", "/empty-dir" => "/empty-dir/" }.each do |path, location|
      response = get(path)
      response.status == 301 ? assert_redirect(location, response) : assert_status(accepted(404, 403), response)
    end
  end

  it "does not redirect to another host by double slashes" do
    ["//evil.test", "///evil.test", "//evil.test/", "/.//evil.test", "/dir/..//evil.test", "//evil.test/..", "/%2fevil.test", "//evil.test%2f..", "/\\evil.test", "/%5cevil.test", "//example.test@evil.test"].each do |path|
      location = get(path)["location"] or next
      refute_match(%r{\A(//|/?\\|http://(?!example\.test[:/]|127\.0\.0\.1))}, location, path)
    end
  end

  it "keeps line breaks out of Location" do
    ["/line%0d%0abreak:%20x", "/line%0D%0Abreak:%20x?y=1", "/dir%0d%0aSet-Cookie:%20x=1", "/dir?%0d%0aSet-Cookie:x=1", "/%0d%0aSet-Cookie:%20x=1/.."].each do |path|
      response = get(path)
      assert_empty response.all("break") + response.all("set-cookie"), path
      assert_match(/\A[\x21-\x7e]+\z/, response["location"], path) if response["location"]
    end
  end

  it "hides the content of a directory without an index" do
    %w[/noindex/ /empty-dir/ /out-dir/].each { |path| assert_hidden get(path), "inside", path }
  end

  it "does not serve a file as a directory" do
    ["/text.txt/", "/text.txt/more", "/text.txt/..%2ftext.txt/", "/index.html/"].each { |path| assert_status 404, get(path), path }
  end

  it "serves index.html by its name" do
    response = get("/index.html")
    assert_status accepted(200, 301), response
    assert_equal "<p>home", response.body if response.status == 200
  end

  # --- names

  { "/with%20space.txt" => "space", "/quote'%22.txt" => "quote", "/quote%27%22.txt" => "quote", "/plus+.txt" => "plus", "/plus%2B.txt" => "plus", "/plus%20.txt" => "no plus", "/what%3f.txt" => "question",
    "/hash%23tag.txt" => "hash", "/50%25.txt" => "percent", "/semi;colon.txt" => "semicolon", "/a&b=c.txt" => "ampersand", "/a:b.txt" => "colon", "/~tilde.txt" => "tilde", "/%7Etilde.txt" => "tilde",
    "/caf%C3%A9.txt" => "composed", "/cafe%CC%81.txt" => "decomposed", "/%E6%97%A5%E6%9C%AC.txt" => "japan", "/%F0%9F%A7%B1.txt" => "brick", "/%2541.txt" => "percent forty-one", "/%41.txt" => "letter",
    "/te%78t.txt" => TEXT, "/dots...txt" => "dots too", "/dir/deep/deeper/text.txt" => "deep", "/.well-known/security.txt" => "contact" }.each do |path, body|
    it "serves #{path}" do
      response = get(path)
      assert_status 200, response
      assert_equal body, response.body
    end
  end

  it "accepts raw UTF-8 in a target, or refuses it" do
    response = get("/caf\u00e9.txt".b)
    assert_status accepted(200, 400), response
    assert_equal "composed", response.body if response.status == 200
  end

  it "serves names of 255 bytes, and no longer ones" do
    assert_equal "long", get("/#{LONG_NAME}").body
    assert_status accepted(404, 414), get("/#{'n' * 256}.txt")
    assert_status accepted(404, 414), get("/#{'n' * 7000}")
  end

  it "survives very long and very deep paths" do
    assert_status accepted(404, 414), get("/#{'a/' * 3000}")
    assert_status accepted(200, 400, 404, 414), get("/#{'./' * 3000}text.txt")
    assert_status accepted(414, 400, 404, 431), get("/#{'b' * 100_000}")
  end

  it "distinguishes upper and lower case" do
    assert_equal "camel", get("/CamelCase.txt").body
    assert_status 404, get("/camelcase.txt")
    assert_status 404, get("/TEXT.TXT")
  end

  it "resolves dots and double slashes by RFC 3986, or refuses them" do
    ["/./text.txt", "/dir/../text.txt", "/dir/./../text.txt", "//text.txt", "/dir//..//text.txt", "/dir/%2e%2e/text.txt", "/%2e/text.txt"].each do |path|
      response = get(path)
      assert_status accepted(200, 301, 400, 404), response, path
      assert_equal TEXT, response.body, path if response.status == 200
    end
  end

  it "refuses NUL, broken escapes and bytes that are not UTF-8" do
    { "/text.txt%00" => accepted(400, 404), "/text.txt%00.html" => accepted(400, 404), "/%00" => accepted(400, 404), "/dir/%00/../text.txt" => accepted(400, 404), "/%zz" => accepted(400, 404), "/text.txt%" => accepted(400, 404), "/text.txt%4" => accepted(400, 404),
      "/%C3%28.txt" => accepted(400, 404), "/%FF%FE" => accepted(400, 404), "/%C0%AFtext.txt" => accepted(400, 404), "/%ED%A0%80" => accepted(400, 404), "/%u0041.txt" => accepted(400, 404) }.each do |path, statuses|
      assert_status statuses, get(path), path
    end
  end

  it "does not treat a fragment as part of a name" do
    response = get("/text.txt#fragment")
    assert_status accepted(400, 200, 404), response
    assert_equal TEXT, response.body if response.status == 200
  end
end
