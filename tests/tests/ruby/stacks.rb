# Sleeps at many places of random stacks, and says where by Ruby's own account: a JSON object of thread id to a list of
# stacks, each a list of [label, line], outermost first.
require "json"

# Functions in C have no code of Ruby's: their locations are those of their callers.
IN_C = %w[call each each_with_index map sort_by inject times min max fetch send public_send new resume next catch throw eval
          instance_eval instance_exec loop upto cycle each_slice == to_proc class_eval each_entry].freeze

# Without the class that it has from 3.4 on.
def method_of(place)
  place.label.sub(/\A[A-Z][\w:]*[#.]/, "")
end

# Never has anything to read.
QUIET = IO.pipe

def account
  places = caller_locations(1).reject { |at| IN_C.include?(method_of(at)) && !at.path.to_s.start_with?("<internal:") }
  places.reverse.map { |at| [at.label, at.lineno] }
end

def nap(stacks)
  # One line, so that the account and the sleep are at the same one.
  stacks << account; IO.select([QUIET[0]], nil, nil, 0.004)
end

class Thing
  include Comparable

  def initialize(go, is_silent = true)
    @go = go
    @go.call unless is_silent
  end

  def plain
    @go.call
  end

  def yielding
    yield
  end

  def <=>(other)
    @go.call
    0
  end

  def to_s
    @go.call
    "thing"
  end

  def method_missing(name, *)
    name == :absent ? @go.call : super
  end

  def respond_to_missing?(*)
    false
  end

  define_method(:defined) { @go.call }

  def ohne_nämen_ß
    @go.call
  end

  class << self
    def of_class(go)
      go.call
    end
  end
end

class Heir < Thing
  def plain
    super
  end
end

def recursion(go, depth)
  depth == 0 ? go.call : recursion(go, depth - 1)
end

def with_rescue(go)
  raise "inside"
rescue RuntimeError
  go.call
ensure
  [1].each { |_| }
end

def with_ensure(go)
  catch(:done) do
    begin
      throw :done
    ensure
      go.call
    end
  end
end

def after_exceptions(go)
  3.times do
    begin
      [1].each { |_| [2].map { |_| Integer("none") } }
    rescue ArgumentError
      nil
    end
  end
  go.call
end

def leaving_early(go)
  [1, 2].each { |_| [3].each { |_| return go.call } }
end

def made_at_run_time(go)
  number = rand(1 << 30)
  eval("#{"\n" * (number % 50)}def made_#{number}(go)\n  go.call\nend\n")
  send("made_#{number}", go)
end

def generated(go)
  numbers = Enumerator.new { |to| to << go.call }
  numbers.next
end

WAYS = [
  ->(go) { go.call },
  ->(go) { Thing.new(go, false) },
  ->(go) { Thing.new(go).plain },
  ->(go) { Heir.new(go).plain },
  ->(go) { Thing.new(go).yielding { go.call } },
  ->(go) { Thing.new(go).yielding(&go) },
  ->(go) { Thing.new(go) == Thing.new(go) },
  ->(go) { [Thing.new(go), Thing.new(go)].min },
  ->(go) { "#{Thing.new(go)}" },
  ->(go) { Thing.new(go).absent },
  ->(go) { Thing.new(go).defined },
  ->(go) { Thing.new(go).ohne_nämen_ß },
  ->(go) { Thing.of_class(go) },
  ->(go) { [1].each { |_| [2].map { |_| go.call } } },
  ->(go) { [2, 1].sort_by { |i| i == 1 ? go.call.hash : 0 } },
  ->(go) { [1, 2].inject { |_, _| go.call } },
  ->(go) { 1.times { go.call } },
  ->(go) { Hash.new { |_, _| go.call }[1] },
  ->(go) { {}.fetch(1) { go.call } },
  ->(go) { [1].each(&->(_) { go.call }) },
  ->(go) { go.instance_eval { call } },
  ->(go) { go.public_send(:call) },
  ->(go) { Fiber.new { go.call }.resume },
  ->(go) { 7.tap { go.call } },
  ->(go) { recursion(go, rand(30)) },
  ->(go) { Thing.class_eval { go.call } },
  method(:with_rescue), method(:with_ensure), method(:after_exceptions), method(:leaving_early),
  method(:made_at_run_time), method(:generated)
].freeze

def descend(stacks, depth)
  return nap(stacks) if depth == 0

  WAYS.sample.call(-> { descend(stacks, depth - 1) })
end

def work(all_stacks, count)
  stacks = all_stacks[Thread.current.native_thread_id] = []
  count.times { descend(stacks, rand(1..8)) }
end

# Frees and moves objects all the time.
def collect
  Thread.new do
    loop do
      GC.start
      GC.compact
      sleep 0.001
    end
  end
end

def main
  count = ARGV[0].to_i
  srand(ARGV[1].to_i)
  collect if ARGV[2] == "gc"
  all_stacks = {}
  threads = 3.times.map { Thread.new { work(all_stacks, count) } }
  work(all_stacks, count)
  threads.each(&:join)
  puts JSON.generate(all_stacks)
end

main
