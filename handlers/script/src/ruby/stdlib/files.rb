# `require` of Ruby files beside the handler. Names of what the server provides itself are skipped.
LoadError = Class.new(ScriptError) unless Object.const_defined?(:LoadError)

$LOAD_PATH = []
$LOADED_FEATURES = []
$H2O_ROOT = ''

module Rt
  THERE = %w[
    base64 cgi cgi/escape cgi/util date digest digest/md5 digest/sha1 digest/sha2 fiber json logger net/http openssl
    rack/utils redis hiredis securerandom set stringio strscan time uri erb/util enumerator rational complex
  ]

  # Files that come with H2O, by the names that its handlers use.
  H2O_FILES = %w[acl bootstrap dos_detector htpasswd lru_cache preloads prometheus trie_addr]

  class << self
    # Whether the server already provides what this file would define.
    def there?(name)
      name = name[0...-3] if name.end_with?('.rb')
      return true if THERE.include?(name) || H2O_FILES.include?(name)
      place = name.rindex('share/h2o/mruby/')
      place ? H2O_FILES.include?(name[(place + 16)..-1]) : false
    end

    # Loads a file once; false if it was loaded before.
    def require(name, places)
      path, code = call(FILE_READ, name, places)
      return false if $LOADED_FEATURES.include?(path)
      $LOADED_FEATURES << path
      begin
        TOPLEVEL.__send__(:__load__, code, path)
      rescue Exception => e
        $LOADED_FEATURES.delete(path)
        raise e
      end
      true
    end

    # Folder of the file that called the caller of this method.
    def folder_of(frame)
      file = frame.to_s
      colon = file.index(':')
      file = colon ? file[0, colon] : file
      slash = file.rindex('/')
      slash ? file[0, slash] : '.'
    end
  end
end

module Kernel
  def require(name)
    name = name.to_s
    return false if Rt.there?(name)
    Rt.require(name, $LOAD_PATH + Rt.call(Rt::FILE_FOLDERS))
  end

  def require_relative(name)
    Rt.require(name.to_s, [Rt.folder_of(caller(1)[0])])
  end

  # Runs a file each time it is called.
  def load(name, _wrap = false)
    path, code = Rt.call(Rt::FILE_READ, name.to_s, $LOAD_PATH + Rt.call(Rt::FILE_FOLDERS))
    TOPLEVEL.__send__(:__load__, code, path)
    true
  end

  def __dir__
    Rt.folder_of(caller(1)[0])
  end
end
