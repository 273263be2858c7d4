BEGIN TRANSACTION;
CREATE TABLE clusterdp_attempts (
	experiment TEXT NOT NULL, 
	period TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT, 
	started_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	host TEXT NOT NULL, 
	folder TEXT, 
	PRIMARY KEY (experiment, period)
);
INSERT INTO "clusterdp_attempts" VALUES('nights','b','published',NULL,'2026-11-23 05:55:06.000000','2026-11-23 05:55:06.000000','a-machine',NULL);
CREATE TABLE clusterdp_charges (
	id INTEGER NOT NULL, 
	population TEXT NOT NULL, 
	experiment TEXT NOT NULL, 
	period TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	slot TEXT, 
	epsilon TEXT NOT NULL, 
	delta TEXT NOT NULL, 
	state TEXT NOT NULL, 
	path TEXT NOT NULL, 
	draft TEXT, 
	host TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	rows_digest TEXT, 
	units_digest TEXT, 
	settings_digest TEXT, 
	roster TEXT, 
	most_epsilon TEXT, 
	most_delta TEXT, 
	file_sha256 TEXT, 
	withdrawn TEXT, 
	withdrawn_at DATETIME, 
	pruned_at DATETIME, 
	PRIMARY KEY (id), 
	UNIQUE (slot)
);
INSERT INTO "clusterdp_charges" VALUES(1,'people','trial','reserved',1,'trial.reserved.r1','0.1','1e-09','reserved','/somewhere/releases/trial/trial.reserved.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:55:04.000000','k-1:rows reserved','k-1:units trial reserved','k-1:settings',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(2,'people','trial','publishing',1,'trial.publishing.r1','0.1','1e-09','publishing','/somewhere/releases/trial/trial.publishing.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:55:04.000000','k-1:rows publishing','k-1:units trial publishing','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(3,'people','trial','published',1,'trial.published.r1','0.1','1e-09','published','/somewhere/releases/trial/trial.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:55:04.000000','k-1:rows published','k-1:units trial published','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(4,'people','trial','lost',1,'trial.lost.r1','0.1','1e-09','lost','/somewhere/releases/trial/trial.lost.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:55:04.000000','k-1:rows lost','k-1:units trial lost','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(5,'people','trial','void',1,NULL,'0.1','1e-09','void','/somewhere/releases/trial/trial.void.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:55:05.000000','k-1:rows void','k-1:units trial void','k-1:settings',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(6,'people','winter','published',1,'winter.published.r1','0.25','0.0','published','/somewhere/releases/trial/winter.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:55:05.000000','k-1:rows published','k-1:units winter published','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(7,'others','trial@north','published',1,'trial@north.published.r1','4.0','0.0','published','/somewhere/releases/trial/trial@north.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:55:05.000000','k-1:rows published','k-1:units trial@north published','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(8,'people','trial','found',3,'trial.found.r3','0.7','0.0','published','/somewhere/releases/trial/trial.found.r3.duckdb',NULL,'a-machine','2026-11-23 05:55:05.000000',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(9,'people','nights','a',1,'nights.a.r1','0.5','0.0','published','/somewhere/releases/trial/nights.a.r1.duckdb',NULL,'a-machine','2026-11-23 05:55:05.000000','k:nights a','k:units of a','k:s','c9022680f888674e-9','0.5','0.0',NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(10,'people','nights','b',1,'nights.b.r1','0.5','0.0','published','/somewhere/releases/trial/nights.b.r1.duckdb',NULL,'a-machine','2026-11-23 05:55:05.000000','k:nights b','k:units of b','k:s','c9022680f888674e-10','1.0','0.0',NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(11,'people','nights','c',1,'nights.c.r1','0.5','0.0','reserved','/somewhere/releases/trial/nights.c.r1.duckdb',NULL,'a-machine','2026-11-23 05:55:06.000000','k:nights c','k:units of c','k:s','c9022680f888674e-11','0.5','0.0',NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(12,'people','nights','d',1,NULL,'0.5','0.0','void','/somewhere/releases/trial/nights.d.r1.duckdb',NULL,'a-machine','2026-11-23 05:55:06.000000','k:nights d','k:units of d','k:s',NULL,'0.5','0.0',NULL,NULL,NULL,NULL);
CREATE TABLE clusterdp_ledger (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "clusterdp_ledger" VALUES(3);
CREATE TABLE clusterdp_populations (
	population TEXT NOT NULL, 
	key_fingerprint TEXT NOT NULL, 
	PRIMARY KEY (population)
);
INSERT INTO "clusterdp_populations" VALUES('people','73737373737373737373737373737373');
CREATE TABLE clusterdp_register_pieces (
	name TEXT NOT NULL, 
	piece INTEGER NOT NULL, 
	words BLOB NOT NULL, 
	PRIMARY KEY (name, piece)
);
CREATE TABLE clusterdp_registers (
	name TEXT NOT NULL, 
	population TEXT NOT NULL, 
	key_fingerprint TEXT NOT NULL, 
	n_words BIGINT NOT NULL, 
	checksum TEXT NOT NULL, 
	histories TEXT NOT NULL, 
	charges TEXT, 
	PRIMARY KEY (name)
);
INSERT INTO "clusterdp_registers" VALUES('c9022680f888674e-9','people','73737373737373737373737373737373',3,'gmac:4701b4855d2c152763d234d2ee9774a4f7a7b39915483a70fdeb7d4c66206855:ff569192e8c3a5d102b520362e5ee881','{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]]}',NULL);
INSERT INTO "clusterdp_registers" VALUES('c9022680f888674e-10','people','73737373737373737373737373737373',3,'gmac:b16d27ba3aaf88fce29e6d4f5cc47e716295648eca34caf94c53b774f27cdc78:1d8db352f5d0944412e9be91a417e189','{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]]}',NULL);
INSERT INTO "clusterdp_registers" VALUES('c9022680f888674e-11','people','73737373737373737373737373737373',1,'gmac:8625cdbaf0a191a7095b3e4a0b0be6029c44beeff783e081119daa4276be345b:ba1d8e31863da1c956e6501a1c6023e7','{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]]}',NULL);
INSERT INTO "clusterdp_registers" VALUES('c9022680f888674e-10-2','people','73737373737373737373737373737373',4,'gmac:6b6d552b09943bbb731b3bc00499f9d6171cc227e718dc9a5486038d1e8798e6:176b70329dfd1eefd5be8e991170d9b5','{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]], [[1, 1], [0, 1]]]}','[9, 10]');
CREATE INDEX ix_clusterdp_charges_experiment ON clusterdp_charges (experiment);
CREATE INDEX ix_clusterdp_charges_population ON clusterdp_charges (population);
CREATE INDEX ix_clusterdp_charges_roster ON clusterdp_charges (roster);
CREATE INDEX ix_clusterdp_charges_units_digest ON clusterdp_charges (units_digest);
CREATE INDEX ix_clusterdp_registers_population ON clusterdp_registers (population);
COMMIT;
-- register c9022680f888674e-10 0200c042fb70235401e0ad50ddb4bf6c0160306d5c7545ce
-- register c9022680f888674e-10-2 0300c042fb70235401e0ad50ddb4bf6c013052612dca92890360306d5c7545ce
-- register c9022680f888674e-11 0140fe35b0b3cd1d
-- register c9022680f888674e-9 0100c042fb702354013052612dca92890260306d5c7545ce
