# Runs chains of methods that are made, called and thrown away, by calls through C, exceptions and fibers, in two threads. Each
# name says which chain the method is of, and at which place of it.
def make(number)
  depth = 4
  text = (0...depth).map do |level|
    inner = "f_#{number}_#{level + 1}"
    call = ["#{inner}", "[1].each { |_| #{inner} }", "[2, 1].sort_by { |_| #{inner} }", "begin; #{inner}; raise 'x'; rescue; 1; end",
            "Fiber.new { #{inner} }.resume"][(number + level) % (level < 3 ? 4 : 5)]
    "def f_#{number}_#{level}; #{call}; end"
  end
  text << "def f_#{number}_#{depth}; i = 0; while i < 300; i += 1; end; i; end"
  Class.new { class_eval(text.join("\n")) }.new
end

def run(seconds, first)
  over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
  number = first
  while Process.clock_gettime(Process::CLOCK_MONOTONIC) < over
    thing = make(number)
    20.times { thing.send("f_#{number}_0") }
    number += 2
  end
end

seconds = ARGV[0].to_f
other = Thread.new { run(seconds, 1) }
run(seconds, 0)
Process.kill(:KILL, Process.pid) if ARGV[1] == "killed"
other.join
