// A kitchen: the main thread's run loop takes orders and serves, cooks work in a queue (Sources/cooks).
//
// What its trace shows: flows from `take_order` to the cooks' threads and back, waits for a plate and for the stove with the cook
// who has it and who ends the wait, turns of the run loop, and where the time of a dish goes.
import Foundation
import Stackbeat
import cooks

var options = Stackbeat.Options()
options.output = URL(fileURLWithPath: CommandLine.arguments.dropFirst().first ?? "kitchen.beat")
do {
    try Stackbeat.start(options)
} catch {
    print("not recorded: \(error)")
}
for number in 1...200 {
    take_order(Int32(number)) { Stackbeat.mark("served \($0)") }
    if number % 20 == 0 {
        RunLoop.main.run(until: Date(timeIntervalSinceNow: 0.05))
    }
}
close_kitchen()
RunLoop.main.run(until: Date(timeIntervalSinceNow: 0.2))
try? Stackbeat.stop()
