import Foundation

#if STACKBEAT_NOOP
import CStackbeatNoop
#else
import StackbeatApp
#endif

/// A recording of this app by itself. The functions are those of `stackbeat_app.h`.
public enum Stackbeat {
    /// Why nothing was done.
    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    /// What to record; `nil` has its default.
    public struct Options {
        /// Where the trace goes; default: `Library/Caches/stackbeat/app.beat`.
        public var output: URL?
        /// Time between samples of a thread.
        public var interval: TimeInterval?
        /// The same for the main thread.
        public var mainInterval: TimeInterval?
        /// Part of the app's CPU time that the recording may take, percent.
        public var budgetPercent: Double?
        /// Groups of probes, such as `["lock", "wait"]`.
        public var probes: [String]?
        /// The session ends by itself after this time.
        public var duration: TimeInterval?
        /// Capture nothing until `capture(true)`.
        public var startDisabled = false

        public init() {}

        fileprivate func with<T>(_ body: (UnsafePointer<stackbeat_app_options>) -> T) -> T {
            let path = output?.path
            let groups = probes?.joined(separator: ",")
            return withOptional(path) { path in
                withOptional(groups) { groups in
                    var options = stackbeat_app_options()
                    options.bytes = MemoryLayout<stackbeat_app_options>.size
                    options.output = path
                    options.interval_ns = nanoseconds(interval)
                    options.main_interval_ns = nanoseconds(mainInterval)
                    options.budget_percent = budgetPercent ?? 0
                    options.probes = groups
                    options.duration_ns = nanoseconds(duration)
                    options.start_disabled = startDisabled ? 1 : 0
                    return body(&options)
                }
            }
        }
    }

    /// Begins a session.
    public static func start(_ options: Options = Options()) throws {
        try check(options.with { stackbeat_app_start($0) })
    }

    /// Ends it. The trace is complete when this returns.
    public static func stop() throws {
        try check(stackbeat_app_stop())
    }

    /// Captures from now on, or nothing until it is asked for.
    public static func capture(_ on: Bool) throws {
        try check(stackbeat_app_capture(on ? 1 : 0))
    }

    /// Changes intervals and probes.
    public static func set(_ options: Options) throws {
        try check(options.with { stackbeat_app_set($0) })
    }

    /// Something happened now, in this thread.
    public static func mark(_ text: String) {
        stackbeat_app_mark(text)
    }

    /// Writes what the session holds into a trace of its own: all of it, or the last part.
    public static func dump(to output: URL, last: TimeInterval? = nil) throws {
        try check(stackbeat_app_dump(output.path, nanoseconds(last)))
    }

    /// Where the session stands, as JSON; `nil`: there is none.
    public static var status: String? {
        let text = read { stackbeat_app_status($0, $1) }
        return text.isEmpty ? nil : text
    }

    private static func check(_ result: Int32) throws {
        if result != 0 {
            throw Failure(description: read { stackbeat_app_error($0, $1) })
        }
    }

    private static func read(_ function: (UnsafeMutablePointer<CChar>?, Int) -> Int) -> String {
        var text = [CChar](repeating: 0, count: 64 << 10)
        _ = function(&text, text.count)
        return String(cString: text)
    }
}

private func nanoseconds(_ time: TimeInterval?) -> UInt64 {
    UInt64(max(0, time ?? 0) * 1e9)
}

private func withOptional<T>(_ text: String?, _ body: (UnsafePointer<CChar>?) -> T) -> T {
    guard let text = text else { return body(nil) }
    return text.withCString { body($0) }
}
