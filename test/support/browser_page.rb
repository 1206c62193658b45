# frozen_string_literal: true

# A page in the browser: navigates, runs scripts, and records every request with its outcome and everything that the
# console shows.

require "json"
require "support/clock"

class BrowserPage
  include Clock

  # One request; +status+ is nil until there is a response, +error+ is the network error. It is +abandoned+ when its document
  # (the +loader+) was left before it ended: the browser does not always report the end of such requests.
  Request = Struct.new(:id, :loader, :url, :type, :verb, :status, :error, :mime, :ended, :abandoned, keyword_init: true) do
    def path = url[%r{\Ahttps?://[^/]+(/[^?#]*)}, 1] || url

    def failed? = !!error || (status || 0) >= 400

    def to_s = "#{verb} #{url} (#{type}): #{error || status || 'no response'}"
  end

  attr_reader :session, :context, :requests, :console

  def initialize(browser, session, context, scheme:, width:, height:)
    @browser = browser
    @session = session
    @context = context
    @scheme = scheme
    @size = { width:, height: }
    forget
  end

  def prepare
    %w[Page Runtime Network Log].each { |domain| command("#{domain}.enable") }
    command("Page.setLifecycleEventsEnabled", { enabled: true })
    command("Emulation.setDeviceMetricsOverride", { **@size, deviceScaleFactor: 1, mobile: false })
    command("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: @scheme }, { name: "prefers-reduced-motion", value: "reduce" }] })
    self
  end

  # Loads an address as if typed, and waits until the document and everything that it requests is loaded.
  # Returns the document's own request; after redirects, the last one.
  def goto(url)
    forget
    answer = command("Page.navigate", { url: })
    raise Browser::Refusal, "#{url}: #{answer['errorText']}" if answer["errorText"]

    loader = answer.fetch("loaderId")
    @browser.listen("#{url} to be loaded") { @loaded.include?(loader) }
    settle
    requests.reverse.find { |request| request.id == loader }
  end

  # Waits until every request has ended.
  def settle
    @browser.listen("the end of #{requests.reject(&:ended).join(', ')}") { requests.all?(&:ended) }
  end

  # The value of a JavaScript expression; promises are awaited.
  def evaluate(script)
    answer = command("Runtime.evaluate", { expression: script, awaitPromise: true, returnByValue: true, userGesture: true })
    fault = answer["exceptionDetails"]
    raise Browser::Refusal, "#{script}: #{fault.dig('exception', 'description') || fault['text']}" if fault

    answer["result"]["value"]
  end

  # Waits until an expression is true; returns its value.
  def wait(script, within: 15)
    wait_until(within: within) { evaluate(script) } || raise(Browser::Refusal, "waited #{within} s for #{script}; the page is:\n#{text}")
  end

  # The visible text.
  def text(selector = "body")
    evaluate("document.querySelector(#{JSON.generate(selector)})?.innerText")
  end

  # Clicks with the mouse in the middle of an element, as a visitor would.
  def click(selector)
    x, y = evaluate(<<~SCRIPT) || raise(Browser::Refusal, "nothing to click at #{selector}")
      (() => {
        const element = document.querySelector(#{JSON.generate(selector)});
        if (!element) return null;
        element.scrollIntoView({ block: "center" });
        const box = element.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];
      })()
    SCRIPT
    %w[mousePressed mouseReleased].each do |type|
      command("Input.dispatchMouseEvent", { type:, x:, y:, button: "left", clickCount: 1 })
    end
  end

  # Types into the focused element.
  def type(text)
    command("Input.insertText", { text: })
  end

  # Presses a key that is not a character: Tab, Enter, Escape.
  def press(key)
    code = { "Tab" => 9, "Enter" => 13, "Escape" => 27 }.fetch(key)
    text = { "Enter" => "\r" }[key]
    command("Input.dispatchKeyEvent", { type: text ? "keyDown" : "rawKeyDown", key:, code: key, windowsVirtualKeyCode: code, text: }.compact)
    command("Input.dispatchKeyEvent", { type: "keyUp", key:, code: key, windowsVirtualKeyCode: code })
  end

  # Turns off the scripts of pages that are loaded from now on; `evaluate` still works.
  def without_scripts
    command("Emulation.setScriptExecutionDisabled", { value: true })
  end

  def path
    evaluate("location.pathname")
  end

  def title
    evaluate("document.title")
  end

  # Requests that failed or got an error status.
  def failures
    requests.select(&:failed?)
  end

  # Writes a PNG of the visible page.
  def screenshot(file)
    data = command("Page.captureScreenshot", { format: "png" }).fetch("data")
    File.binwrite(file, data.unpack1("m"))
  end

  def close
    @browser.forget(self)
  end

  # Handles an event of the browser for this page.
  def notice(event, params)
    case event
    when "Network.requestWillBeSent" then sent(params)
    when "Network.responseReceived" then answered(params)
    when "Network.loadingFinished" then ended(params)
    when "Network.loadingFailed" then ended(params, params["errorText"])
    when "Page.frameNavigated" then left(params["frame"])
    when "Page.lifecycleEvent" then @loaded << params["loaderId"] if params["name"] == "load"
    when /\A(Runtime|Log)\./ then heard(event, params)
    end
  end

  private

  def command(method, params = {})
    @browser.command(method, params, session:)
  end

  def forget
    @requests = []
    @console = []
    @loaded = []
  end

  # A redirect is reported as a second request of the same id.
  def sent(params)
    redirect = params["redirectResponse"]
    open_request(params)&.then { |before| before.status = redirect["status"] and before.ended = true } if redirect
    @requests << Request.new(id: params["requestId"], loader: params["loaderId"], url: params["request"]["url"], verb: params["request"]["method"], type: params["type"])
  end

  def answered(params)
    request = open_request(params) or return
    request.status = params["response"]["status"]
    request.mime = params["response"]["mimeType"]
  end

  def ended(params, error = nil)
    request = open_request(params) or return
    request.ended = true
    request.error = error
  end

  def left(frame)
    return if frame["parentId"]

    @requests.reject { |request| request.ended || request.loader == frame["loaderId"] }.each { |request| request.ended = request.abandoned = true }
  end

  def open_request(params)
    @requests.reverse.find { |request| request.id == params["requestId"] && !request.ended }
  end

  # Collects the console's warnings, errors and exceptions.
  def heard(event, params)
    case event
    when "Runtime.consoleAPICalled"
      return unless %w[warning error assert].include?(params["type"])

      @console << "#{params['type']}: #{params['args'].map { |arg| arg['value'] || arg['description'] }.join(' ')}"
    when "Runtime.exceptionThrown"
      fault = params["exceptionDetails"]
      @console << "exception: #{fault.dig('exception', 'description') || fault['text']}"
    when "Log.entryAdded"
      entry = params["entry"]
      @console << "#{entry['level']}: #{entry['text']} #{entry['url']}".strip if %w[warning error].include?(entry["level"])
    end
  end
end
