// swift-tools-version: 5.7
import PackageDescription

let package = Package(
    name: "kitchen",
    platforms: [.macOS(.v11)],
    dependencies: [.package(name: "Stackbeat", path: "../../apple/swift")],
    targets: [
        .executableTarget(name: "kitchen", dependencies: [.product(name: "Stackbeat", package: "Stackbeat")])
    ]
)
