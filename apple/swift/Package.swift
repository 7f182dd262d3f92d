// swift-tools-version: 5.7
// Two products with the same functions: `Stackbeat` records, `StackbeatNoop` does nothing and brings nothing along. The library is
// built by ../build-xcframework.sh.
import PackageDescription

let package = Package(
    name: "Stackbeat",
    platforms: [.iOS(.v14), .macOS(.v11)],
    products: [
        .library(name: "Stackbeat", targets: ["Stackbeat"]),
        .library(name: "StackbeatNoop", targets: ["StackbeatNoop"]),
    ],
    targets: [
        .binaryTarget(name: "StackbeatApp", path: "StackbeatApp.xcframework"),
        .target(name: "Stackbeat", dependencies: ["StackbeatApp"]),
        .target(name: "CStackbeatNoop"),
        .target(
            name: "StackbeatNoop", dependencies: ["CStackbeatNoop"],
            swiftSettings: [.define("STACKBEAT_NOOP")]),
    ]
)
