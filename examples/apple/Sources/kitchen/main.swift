// A kitchen: orders go to a queue, cooks share one stove (a lock), and the main thread's run loop serves what is ready.
//
// What its trace shows: flows from `take order` to the cooks' threads, waits for the stove with the cook who has it and who ends the
// wait, turns of the run loop, and where the time of a dish goes.
import Dispatch
import Foundation
import Stackbeat

final class Kitchen {
    private let stove = NSObject()
    private let cooks = DispatchQueue(label: "cooks", attributes: .concurrent)
    private let plates = DispatchSemaphore(value: 3)
    private let group = DispatchGroup()

    func takeOrder(_ number: Int) {
        cooks.async(group: group) { [self] in
            plates.wait()
            cook(number)
            plates.signal()
            DispatchQueue.main.async { self.serve(number) }
        }
    }

    private func cook(_ number: Int) {
        objc_sync_enter(stove)
        defer { objc_sync_exit(stove) }
        var taste = Double(number)
        for _ in 0..<200_000 {
            taste = sin(taste) + 1
        }
        precondition(taste.isFinite)
    }

    private func serve(_ number: Int) {
        Stackbeat.mark("served \(number)")
    }

    func close() {
        group.wait()
    }
}

var options = Stackbeat.Options()
options.output = URL(fileURLWithPath: CommandLine.arguments.dropFirst().first ?? "kitchen.beat")
do {
    try Stackbeat.start(options)
} catch {
    print("not recorded: \(error)")
}
let kitchen = Kitchen()
for number in 1...200 {
    kitchen.takeOrder(number)
    if number % 20 == 0 {
        RunLoop.main.run(until: Date(timeIntervalSinceNow: 0.05))
    }
}
kitchen.close()
RunLoop.main.run(until: Date(timeIntervalSinceNow: 0.2))
try? Stackbeat.stop()
