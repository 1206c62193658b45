# frozen_string_literal: true

require_relative "../scenario"

module Bench
  module Shootout
    # A page of a static site under siege.
    class StaticPage < Scenario
      called "static-page", "A static page under siege"
      USERS = 50

      def needs = %w[siege]

      def tables
        [Table.new(title: "", text: text, heads: ["server"], columns: [RATE, CPU, TO_FIREBRICK, LONGEST, ERRORS, PSS, BUSY], trials: servers, plots: plots)]
      end

      private

      def text
        "A file of #{Sites::PAGE.bytesize} bytes, `#{siege.to_s { @size.siege }}`. Servers have one processor, siege the other. siege itself costs many times " \
          "what these servers do: where “generator busy” is near 1, requests/s are siege's, and CPU per request is what tells servers apart."
      end

      def siege = Generators::TimedSiege.new(users: USERS)

      def servers
        target = @setup.target(Sites.folder("page", @setup.dir), [1, 1], Stack::Expected.of(Sites::PAGE, "/page.html"))
        rows(Contestants.files(@setup), target, siege, seconds: @size.siege, lasting: @size.siege + 2)
      end

      def plots
        [bars("static-page-cpu", "A static page under siege: CPU per request", :cpu_us, "CPU time of the server per request", "less", unit: { "named" => "µs" }),
         bars("static-page-rate", "A static page under siege: requests per second", :rate, "requests", "more")]
      end
    end
  end
end
