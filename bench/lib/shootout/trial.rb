# frozen_string_literal: true

module Bench
  module Shootout
    # One thing that is measured, a row of a table.
    #
    # name: unique in its scenario; cells: what stands in the table's leading columns; needs: names of Programs;
    # configuration: { what => text } as it is written down for readers; seconds: about how long it takes, start included;
    # once_over: a trial that took longer than so many seconds is not repeated; work: called for each round, answers
    # figures (metric => number or nil) or raises Failure; absent: why it cannot be measured though programs are there;
    # apart: true for what is no competitor, but something to compare with.
    Trial = Struct.new(:name, :cells, :needs, :configuration, :seconds, :once_over, :work, :absent, :apart, keyword_init: true) do
      def initialize(needs: [], configuration: {}, seconds: 5, once_over: nil, absent: nil, apart: false, **rest) = super
    end

    # A column of figures. metric: a key of what `work` answers; better: "more" or "less" where one direction is the good
    # one; to: a trial's name: the column is then the ratio to it, round by round.
    Column = Struct.new(:title, :metric, :better, :to, keyword_init: true)

    # What was aimed at: a metric of the trial `of`, as a part of that of the trial `to`, round by round. text: what it says.
    Goal = Struct.new(:text, :metric, :of, :to, :at_most, :at_least, keyword_init: true)

    # heads: titles of the leading columns; text: what there is to know; plots: [Plot]; comparable: false where rows do
    # not compete: they keep their order and nobody is named the best.
    Table = Struct.new(:title, :text, :heads, :columns, :trials, :plots, :comparable, keyword_init: true) do
      def initialize(text: "", plots: [], comparable: true, **rest) = super
    end

    # A plot of one metric of a table. name: of its file; unit: of the report crate; groups: a proc from a trial to
    # [group label, series name], for bars that stand together; marked: what is drawn more strongly.
    Plot = Struct.new(:name, :title, :note, :metric, :label, :unit, :better, :groups, keyword_init: true) do
      def initialize(note: "", groups: nil, **rest) = super
    end
  end
end
