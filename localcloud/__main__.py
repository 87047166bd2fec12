from localcloud.cli import main

raise SystemExit(main())
