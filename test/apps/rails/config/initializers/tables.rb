# frozen_string_literal: true

# Creates missing tables, without migrations, in the process that loads the app.
Rails.application.config.after_initialize do
  ActiveRecord::Schema.verbose = false
  database = ActiveRecord::Base.connection
  unless database.table_exists?("entries")
    ActiveRecord::Schema.define do
      create_table(:entries) { |t| t.string :text }
      create_table(:documents) { |t| t.string :name }
      create_table :active_storage_blobs do |t|
        t.string :key, null: false, index: { unique: true }
        t.string :filename, null: false
        t.string :content_type
        t.text :metadata
        t.string :service_name, null: false
        t.bigint :byte_size, null: false
        t.string :checksum
        t.datetime :created_at, null: false
      end
      create_table :active_storage_attachments do |t|
        t.string :name, null: false
        t.references :record, null: false, polymorphic: true, index: false
        t.references :blob, null: false
        t.datetime :created_at, null: false
        t.index %i[record_type record_id name blob_id], name: "index_active_storage_attachments_uniqueness", unique: true
      end
    end
  end
end
