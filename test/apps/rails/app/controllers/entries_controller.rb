# frozen_string_literal: true

class EntriesController < ApplicationController
  def index
    @entries = Entry.order(:id)
  end

  def create
    Entry.create!(text: params[:text])
    redirect_to "/entries"
  end
end
