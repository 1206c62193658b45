# frozen_string_literal: true

class Entry < ApplicationRecord
end
