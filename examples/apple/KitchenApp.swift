// The same as an app for iOS: a new project of Xcode's ("App", SwiftUI) with this file in the place of its own, and the package
// `apple/swift` added. The build for release links StackbeatNoop.
import SwiftUI

#if DEBUG
import Stackbeat
#else
import StackbeatNoop
#endif

@main
struct KitchenApp: App {
    var body: some Scene {
        WindowGroup { OrdersView() }
    }
}

struct OrdersView: View {
    @State private var orders = 0
    @State private var served = 0
    @State private var message = "not recorded"
    private let cooks = DispatchQueue(label: "cooks", attributes: .concurrent)

    var body: some View {
        VStack(spacing: 20) {
            Text("\(served) of \(orders) served")
            Button("Order", action: order)
            Button("Record for 10 s", action: record)
            Text(message).font(.footnote)
        }
        .padding()
    }

    private func order() {
        orders += 1
        let number = orders
        cooks.async {
            var taste = Double(number)
            for _ in 0..<500_000 { taste = sin(taste) + 1 }
            DispatchQueue.main.async {
                Stackbeat.mark("served \(number), \(taste)")
                served += 1
            }
        }
    }

    private func record() {
        var options = Stackbeat.Options()
        options.duration = 10
        do {
            try Stackbeat.start(options)
            message = "recording into Library/Caches/stackbeat/app.beat"
        } catch {
            message = "\(error)"
        }
    }
}
