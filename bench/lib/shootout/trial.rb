# frozen_string_literal: true

module Bench
  module Shootout
    # One measurement, a row of a table.
    #
    # name: unique in its scenario; cells: the table's leading columns; needs: names of Programs;
    # configuration: { title => text } printed for readers; seconds: estimated duration, start included;
    # once_over: a trial that took longer than this many seconds is not repeated; work: called for each round, returns
    # figures (metric => number or nil) or raises Failure; absent: why it cannot be measured although the programs are installed;
    # apart: true for a row that does not compete, but serves as a reference.
    Trial = Struct.new(:name, :cells, :needs, :configuration, :seconds, :once_over, :work, :absent, :apart, keyword_init: true) do
      def initialize(needs: [], configuration: {}, seconds: 5, once_over: nil, absent: nil, apart: false, **rest) = super
    end

    # A column of figures. metric: a key of the result of `work`; better: "more" or "less" where one direction is better;
    # to: a trial's name: the column is then the ratio to it, round by round.
    Column = Struct.new(:title, :metric, :better, :to, keyword_init: true)

    # A goal: a metric of the trial `of` as a ratio to that of the trial `to`, round by round. text: its description.
    Goal = Struct.new(:text, :metric, :of, :to, :at_most, :at_least, keyword_init: true)

    # heads: titles of the leading columns; text: explanation; plots: [Plot]; comparable: false where rows do not compete: they
    # keep their order, and no best one is named.
    Table = Struct.new(:title, :text, :heads, :columns, :trials, :plots, :comparable, keyword_init: true) do
      def initialize(text: "", plots: [], comparable: true, **rest) = super
    end

    # A plot of one metric of a table. name: of its file; unit: of the report crate; groups: a proc from a trial to
    # [group label, series name], for grouped bars; marked: the highlighted one.
    Plot = Struct.new(:name, :title, :note, :metric, :label, :unit, :better, :groups, keyword_init: true) do
      def initialize(note: "", groups: nil, **rest) = super
    end
  end
end
