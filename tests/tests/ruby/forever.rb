# A thread that waits below a block until the program ends.
def forever
  [1].each { |_| IO.pipe.then { |pipe| IO.select([pipe[0]]) } }
end

Thread.new { forever }
sleep 1.5
