def deep(n) = 1 + deep(n + 1)
3.times { begin; deep(0); rescue SystemStackError; puts "stack"; end }
fibers = 200.times.map { |i| Fiber.new { 50.times { |j| sleep 0.0005 if j % 25 == 0; Fiber.yield i * j }; :end } }
puts 50.times.sum { fibers.sum(&:resume) }
puts fibers.map(&:resume).uniq.inspect
puts 8.times.map { |i| Thread.new { sleep 0.01; (1..2000).sum { |x| x.to_s.size + i } } }.map(&:value).inspect
puts 4.times.map { |i| fork { sleep 0.005; exit! i } }.map { |p| Process.wait2(p)[1].exitstatus }.inspect
trap("USR1") { print "" }; 20.times { Process.kill("USR1", $$) }
puts `echo child`; GC.start; GC.compact if GC.respond_to?(:compact); puts "end"
