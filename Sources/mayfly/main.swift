import Program

await Mayfly.main()
