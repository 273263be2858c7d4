BEGIN TRANSACTION;
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
	versions TEXT, 
	PRIMARY KEY (id), 
	UNIQUE (slot)
);
INSERT INTO "clusterdp_charges" VALUES(1,'people','trial','reserved',1,'trial.reserved.r1','0.1','1e-09','reserved','/somewhere/releases/trial/trial.reserved.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-27 12:35:08.000000','k-1:rows reserved','k-1:units trial reserved','k-1:settings',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO "clusterdp_charges" VALUES(2,'people','trial','publishing',1,'trial.publishing.r1','0.1','1e-09','publishing','/somewhere/releases/trial/trial.publishing.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-27 12:35:08.000000','k-1:rows publishing','k-1:units trial publishing','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,NULL,'{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO "clusterdp_charges" VALUES(3,'people','trial','published',1,'trial.published.r1','0.1','1e-09','published','/somewhere/releases/trial/trial.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-27 12:35:08.000000','k-1:rows published','k-1:units trial published','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','wrong prices','2026-11-20 03:15:00.000000',NULL,'{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO "clusterdp_charges" VALUES(4,'people','trial','lost',1,'trial.lost.r1','0.1','1e-09','lost','/somewhere/releases/trial/trial.lost.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-27 12:35:08.000000','k-1:rows lost','k-1:units trial lost','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,NULL,'{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO "clusterdp_charges" VALUES(5,'people','trial','void',1,NULL,'0.1','1e-09','void','/somewhere/releases/trial/trial.void.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-27 12:35:08.000000','k-1:rows void','k-1:units trial void','k-1:settings',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO "clusterdp_charges" VALUES(6,'people','winter','published',1,'winter.published.r1','0.25','0.0','published','/somewhere/releases/trial/winter.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-27 12:35:08.000000','k-1:rows published','k-1:units winter published','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,'2026-11-20 03:15:00.000000','{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO "clusterdp_charges" VALUES(7,'others','trial@north','published',1,'trial@north.published.r1','4.0','0.0','published','/somewhere/releases/trial/trial@north.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-27 12:35:08.000000','k-1:rows published','k-1:units trial@north published','k-1:settings',NULL,NULL,NULL,'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',NULL,NULL,NULL,'{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO "clusterdp_charges" VALUES(8,'people','trial','found',3,'trial.found.r3','0.7','0.0','published','/somewhere/releases/trial/trial.found.r3.duckdb',NULL,'a-machine','2026-11-27 12:35:08.000000',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(9,'people','nights','a',1,'nights.a.r1','0.5','0.0','published','/somewhere/releases/trial/nights.a.r1.duckdb',NULL,'a-machine','2026-11-27 12:35:08.000000','k:nights a','k:units of a','k:s','c9022680f888674e-9','0.5','0.0',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(10,'people','nights','b',1,'nights.b.r1','0.5','0.0','published','/somewhere/releases/trial/nights.b.r1.duckdb',NULL,'a-machine','2026-11-27 12:35:08.000000','k:nights b','k:units of b','k:s','c9022680f888674e-10','1.0','0.0',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(11,'people','nights','c',1,'nights.c.r1','0.5','0.0','reserved','/somewhere/releases/trial/nights.c.r1.duckdb',NULL,'a-machine','2026-11-27 12:35:08.000000','k:nights c','k:units of c','k:s','c9022680f888674e-11','0.5','0.0',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "clusterdp_charges" VALUES(12,'people','nights','d',1,NULL,'0.5','0.0','void','/somewhere/releases/trial/nights.d.r1.duckdb',NULL,'a-machine','2026-11-27 12:35:08.000000','k:nights d','k:units of d','k:s',NULL,'0.5','0.0',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE clusterdp_ends (
	run TEXT NOT NULL, 
	experiment TEXT NOT NULL, 
	period TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT, 
	at TEXT NOT NULL, 
	host TEXT NOT NULL, 
	folder TEXT, 
	release_id TEXT, 
	seconds BIGINT, 
	n_units BIGINT, 
	n_read BIGINT, 
	sample_ratio_p TEXT, 
	set_aside TEXT NOT NULL, 
	PRIMARY KEY (run)
);
INSERT INTO "clusterdp_ends" VALUES('000000000001','trial','published','failed',NULL,'2026-11-01T04:15:00+00:00','unknown',NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "clusterdp_ends" VALUES('000000000002','trial','published','published',NULL,'2026-11-02T04:15:00+00:00','unknown',NULL,'trial.published.r1',7,160,161,'0.25','{"unit_missing": 1}');
INSERT INTO "clusterdp_ends" VALUES('trial.2026-11-03','trial','2026-11-03','refused','why it is refused','2026-11-03T04:15:00+00:00','a-machine',NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "clusterdp_ends" VALUES('trial.2026-11-04','trial','2026-11-04','no_file','why it is no_file','2026-11-04T04:15:00+00:00','a-machine',NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "clusterdp_ends" VALUES('trial.2026-11-05','trial','2026-11-05','failed','why it is failed','2026-11-05T04:15:00+00:00','a-machine',NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "clusterdp_ends" VALUES('000000000006','trial','2026-11-06','running',NULL,'2026-11-06T03:15:00+00:00','a-machine','/somewhere/releases/trial/.draft-000000000006-of-a-run',NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "clusterdp_ends" VALUES('000000000008','trial','found','published',NULL,'2026-11-07T04:15:00+00:00','unknown',NULL,'trial.found.r3',NULL,NULL,NULL,NULL,'{}');
INSERT INTO "clusterdp_ends" VALUES('000000000009','trial','2026-11-09','failed',NULL,'2026-11-09T04:15:00+00:00','unknown',NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "clusterdp_ends" VALUES('trial.2026-11-10','trial','2026-11-10','failed','before there were runs','2026-11-10T04:15:00+00:00','a-machine',NULL,NULL,NULL,NULL,NULL,NULL,'{}');
CREATE TABLE clusterdp_files (
	path TEXT NOT NULL, 
	sha256 TEXT NOT NULL, 
	experiment TEXT NOT NULL, 
	host TEXT NOT NULL, 
	stamp TEXT NOT NULL, 
	PRIMARY KEY (path, sha256)
);
CREATE TABLE clusterdp_ledger (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "clusterdp_ledger" VALUES(5);
CREATE TABLE clusterdp_notices (
	experiment TEXT NOT NULL, 
	period TEXT NOT NULL, 
	event TEXT NOT NULL, 
	sent_at TEXT NOT NULL, 
	PRIMARY KEY (experiment, period, event)
);
INSERT INTO "clusterdp_notices" VALUES('trial','2026-11-03','refused','2026-11-03T03:15:00+00:00');
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
INSERT INTO "clusterdp_registers" VALUES('c9022680f888674e-9','people','2-canonical:73737373737373737373737373737373',3,'gmac:6888e5fdbf51afb0815a3fa2a1921aa7842215020596fd08a55b8beeb23851f3:222a6f39342cf3c431866bbc5ab903b0','{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]], "met": null}',NULL);
INSERT INTO "clusterdp_registers" VALUES('c9022680f888674e-10','people','2-canonical:73737373737373737373737373737373',3,'gmac:e9faf99258b58f71e089e7bcc5e11b78c6b9cec6a4467982ba0727593d1aa706:44ab9d2e8c8458ec16b304b7decfc607','{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]], "met": [2, 3]}',NULL);
INSERT INTO "clusterdp_registers" VALUES('c9022680f888674e-10-2','people','2-canonical:73737373737373737373737373737373',4,'gmac:f5c4dda68147e8650cb7830c59302ba6fc8940d168ce5dbcd6ff3c6311d7e1d2:e5765679e74d4fe784407c6f09b6fb39','{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]], [[1, 1], [0, 1]]], "met": null}','[9, 10]');
INSERT INTO "clusterdp_registers" VALUES('c9022680f888674e-11','people','2-canonical:73737373737373737373737373737373',1,'gmac:df0ec1cf45fe2589e9862e5ef01ed84a3a403360a05d24b824c51de89fbd3135:010385a2fcb9334a5c70fe14a42cf226','{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]], "met": [0, 1]}',NULL);
CREATE INDEX ix_clusterdp_charges_population ON clusterdp_charges (population);
CREATE INDEX ix_clusterdp_charges_roster ON clusterdp_charges (roster);
CREATE INDEX ix_clusterdp_charges_experiment ON clusterdp_charges (experiment);
CREATE INDEX ix_clusterdp_charges_units_digest ON clusterdp_charges (units_digest);
CREATE INDEX ix_clusterdp_registers_population ON clusterdp_registers (population);
CREATE INDEX ix_clusterdp_files_experiment ON clusterdp_files (experiment);
CREATE INDEX ix_clusterdp_ends_experiment ON clusterdp_ends (experiment);
COMMIT;
-- register c9022680f888674e-10 0200c042fb70235401e0ad50ddb4bf6c0160306d5c7545ce
-- register c9022680f888674e-10-2 0300c042fb70235401e0ad50ddb4bf6c013052612dca92890360306d5c7545ce
-- register c9022680f888674e-11 0140fe35b0b3cd1d
-- register c9022680f888674e-9 0100c042fb702354013052612dca92890260306d5c7545ce
