# Computes in ractors, whose threads may run on any thread of the system.
def inner(times)
  i = 0
  i += 1 while i < times
end

def work
  [1].each { |_| inner(100_000) }
end

over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ARGV[0].to_f
ractors = 3.times.map do
  Ractor.new(over) { |over| [1].each { |_| work while Process.clock_gettime(Process::CLOCK_MONOTONIC) < over } }
end
ractors.each(&:take)
