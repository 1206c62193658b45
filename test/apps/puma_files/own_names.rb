# Names of its own, some of which a library could have, too.
class Report
  def self.words = "of the file"
end

def file = "a method of the file"
def record(text) = text.upcase
def set(value) = value
def path = "/"

@config = { "threads" => 2 }
@plugins = nil
@file = "x"
threads @config.fetch("threads") #=> threads = 2:2
workers 1 #=> workers = 1
tag set(record(Report.words.tr(" ", "-"))) #=> tag = OF-THE-FILE
on_worker_boot { Worker.begin(Report) }
