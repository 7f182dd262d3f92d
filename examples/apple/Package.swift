// swift-tools-version: 5.7
import PackageDescription

let package = Package(
    name: "kitchen",
    platforms: [.macOS(.v11)],
    dependencies: [.package(name: "Stackbeat", path: "../../apple/swift")],
    targets: [
        .target(name: "cooks"),
        .executableTarget(
            name: "kitchen", dependencies: ["cooks", .product(name: "Stackbeat", package: "Stackbeat")]),
    ]
)
