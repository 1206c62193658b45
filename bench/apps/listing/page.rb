# frozen_string_literal: true

# The page of this app, and of the static site that it is compared with.
module Listing
  WORDS = %w[the a of to and in is that for on with as was at by from this have are but not they which one all would there their
             what so up out if about who get make can like time no just him know take people into year your good some could them see
             other than then now look only come its over think also back after use two how our work first well way even new want any
             these give day most database request server worker thread memory issue project branch release version report estimate
             migration controller template release deploy rollback schedule capacity overload latency customer invoice payment].freeze

  # The same numbers on every machine.
  class Numbers
    def initialize(seed) = @state = seed

    def below(limit)
      @state = ((@state * 6_364_136_223_846_793_005) + 1_442_695_040_888_963_407) & ((1 << 64) - 1)
      (@state >> 33) % limit
    end
  end

  def self.row(numbers, index)
    title = Array.new(6 + numbers.below(8)) { WORDS[numbers.below(WORDS.size)] }.join(" ").capitalize
    id = 10_000 + numbers.below(90_000)
    <<~HTML
      <tr id="issue-#{id}" data-key="#{Array.new(4) { numbers.below(65_536).to_s(16) }.join}" class="issue #{index.odd? ? 'odd' : 'even'} priority-#{numbers.below(5)}">
        <td class="id"><a href="/issues/#{id}">#{id}</a></td>
        <td class="subject"><a href="/issues/#{id}">#{title}</a></td>
        <td class="assigned"><a class="user" href="/users/#{numbers.below(400)}">#{WORDS[numbers.below(WORDS.size)].capitalize}</a></td>
        <td class="updated">2026-#{format('%02d-%02d %02d:%02d', 1 + numbers.below(11), 1 + numbers.below(28), numbers.below(24), numbers.below(60))}</td>
      </tr>
    HTML
  end

  PAGE = begin
    numbers = Numbers.new(7)
    page = +"<!doctype html>\n<title>Issues</title>\n<table class=\"list issues\">\n"
    index = 0
    page << row(numbers, index += 1) while page.bytesize < 30_000
    page.byteslice(0, 30_000).freeze
  end
end
