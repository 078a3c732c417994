@main enum Mayfly { static func main() {} }
